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
    """Whether the gradient is no larger than asked."""


@dataclass(frozen=True, slots=True)
class _Step:
    moved: Doubles
    change: Doubles
    """Of the gradient."""
    curvature: float
    scale: float
    """What the preconditioner lacks along the step."""


Precondition = Callable[[Doubles], Doubles]
"""Applies an estimate of the inverse Hessian."""
Measure = Callable[[Doubles], float]
"""How large a gradient is."""
Asking = Generator[Doubles, tuple[float, Doubles], Descent]


def descend(
    start: Doubles,
    precondition: Precondition,
    measure: Measure,
    *,
    tolerance: float,
    noise: float,
    iterations: int,
) -> Asking:
    """Minimise a smooth convex function; yields points and is sent (value, gradient) of each.

    Ends where `measure` of the gradient is at most `tolerance`.

    `precondition` applies an estimate of the inverse Hessian. `noise` is the relative error of values: a step may be
    worse by that much.
    """
    point = start
    value, gradient = yield point
    memory: deque[_Step] = deque(maxlen=MEMORY)
    for _ in range(iterations):
        if measure(gradient) <= tolerance:
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
            return Descent(point, measure(gradient) <= 10 * tolerance)
        _remember(memory, tried - point, new_gradient - gradient, precondition)
        point, value, gradient = tried, new_value, new_gradient
    return Descent(point, measure(gradient) <= tolerance)


def _remember(memory: deque[_Step], moved: Doubles, change: Doubles, precondition: Precondition) -> None:
    """Keep a step whose curvature is positive beyond rounding."""
    curvature = float(np.vdot(moved, change))
    if curvature > 1e-12 * float(np.linalg.norm(moved) * np.linalg.norm(change)):
        memory.append(_Step(moved, change, curvature, curvature / float(np.vdot(change, precondition(change)))))


def _inverse_hessian(gradient: Doubles, memory: deque[_Step], precondition: Precondition) -> Doubles:
    """Apply the two-loop recursion of Nocedal (1980), with the preconditioner scaled as the last step suggests."""
    left = gradient.copy()
    weights = []
    for step in reversed(memory):
        weights.append(float(np.vdot(step.moved, left)) / step.curvature)
        left -= weights[-1] * step.change
    found = precondition(left) * (memory[-1].scale if memory else 1.0)
    for step, weight in zip(memory, reversed(weights), strict=True):
        back = float(np.vdot(step.change, found)) / step.curvature
        found += (weight - back) * step.moved
    return found
