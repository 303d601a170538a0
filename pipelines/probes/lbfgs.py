"""Limited-memory BFGS as a coroutine: it asks for values and gradients, and whoever drives it answers.

That lets many problems over one matrix advance together, so that each pass over the matrix serves all of them.
"""

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

MEMORY: Final = 10
"""Steps whose curvature is remembered."""
HALVINGS: Final = 30
ENOUGH: Final = 1e-4
"""Part of the decrease that the slope promises which a step must bring (Armijo)."""


@dataclass(frozen=True, slots=True)
class Descent:
    """Where a minimisation ended."""

    point: Doubles
    converged: bool
    """Whether no entry of the gradient is larger than asked."""


Asking = Generator[Doubles, tuple[float, Doubles], Descent]


def descend(
    start: Doubles, precondition: Callable[[Doubles], Doubles], *, tolerance: float, noise: float, iterations: int
) -> Asking:
    """Minimise a smooth convex function; yields points and is sent (value, gradient) of each.

    `precondition` applies an estimate of the inverse Hessian. `noise` is the relative error of values: a step may be
    worse by that much.
    """
    point = start
    value, gradient = yield point
    memory: deque[tuple[Doubles, Doubles]] = deque(maxlen=MEMORY)
    for _ in range(iterations):
        if _small(gradient, tolerance):
            return Descent(point, converged=True)
        direction = -_inverse_hessian(gradient, memory, precondition)
        slope = float(np.vdot(direction, gradient))
        step = 1.0
        for _ in range(HALVINGS):
            tried = point + step * direction
            new_value, new_gradient = yield tried
            if new_value <= value + ENOUGH * step * slope + noise * abs(value):
                break
            step *= 0.5
        else:
            # values no longer tell points apart
            return Descent(point, _small(gradient, 10 * tolerance))
        _remember(memory, tried - point, new_gradient - gradient)
        point, value, gradient = tried, new_value, new_gradient
    return Descent(point, _small(gradient, tolerance))


def _small(gradient: Doubles, tolerance: float) -> bool:
    return float(np.abs(gradient).max(initial=0.0)) <= tolerance


def _remember(memory: deque[tuple[Doubles, Doubles]], moved: Doubles, change: Doubles) -> None:
    """Keep a pair whose curvature is positive beyond rounding."""
    curvature = float(np.vdot(moved, change))
    if curvature > 1e-12 * float(np.linalg.norm(moved) * np.linalg.norm(change)):
        memory.append((moved, change))


def _inverse_hessian(
    gradient: Doubles, memory: deque[tuple[Doubles, Doubles]], precondition: Callable[[Doubles], Doubles]
) -> Doubles:
    """Apply the two-loop recursion of Nocedal (1980)."""
    left = gradient.copy()
    weights = []
    for moved, change in reversed(memory):
        weight = float(np.vdot(moved, left)) / float(np.vdot(moved, change))
        left -= weight * change
        weights.append(weight)
    found = precondition(left)
    for (moved, change), weight in zip(memory, reversed(weights), strict=True):
        back = float(np.vdot(change, found)) / float(np.vdot(moved, change))
        found = found + (weight - back) * moved
    return found
