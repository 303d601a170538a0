"""A probe with one hidden layer, for what no linear probe can read: softmax over HIDDEN units x * sigmoid(x).

Minimised is the mean loss + alpha / 2n * (|W1|^2 + |W2|^2), as MLPClassifier of scikit-learn has it, by full-batch
L-BFGS from a start that the seed decides. Units without kinks let it converge, which rectified ones do not (with alpha
10 scikit-learn's own search took 2000 steps and was not there); those of tanh do not find two bits that differ among
hundreds of features. It has many minima: which one is found is settled by the start and by at most
STEPS steps, so that the result is the same wherever it is computed. Nothing is stopped early, so no rows are asked when
to stop; alpha is chosen inside the training rows, as the strengths of the linear probes are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pipelines.probes.coordinates import Coordinates, coordinates
from pipelines.probes.design import Layered, Training, sigmoid
from pipelines.probes.lbfgs import Asking, Descent, Doubles, descend
from pipelines.probes.logistic import softmax_residuals
from pipelines.probes.targets import Codes, generator

HIDDEN: Final = 32
"""Hidden units."""
STEPS: Final = 200
TOLERANCE: Final = 1e-4
"""Largest entry of the gradient of the mean loss: the default of scikit-learn."""
SETTINGS: Final[dict[str, Any]] = {
    "hidden_units": HIDDEN, "activation": "silu", "optimiser": "full-batch L-BFGS", "steps": STEPS,
    "tolerance": TOLERANCE, "early_stopping": False,
}  # fmt: skip
"""What manifests record."""


def fit_hidden(
    training: Training, targets: Sequence[Codes], classes: int, strengths: Sequence[float], _tolerance: float = 0.0
) -> list[list[Layered]]:
    """Fit a network for each target and each alpha, all from the same start."""
    space = coordinates(training)
    return [[_Network(training, space, codes, alpha).fit(classes) for alpha in strengths] for codes in targets]


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a point [parameters] is cut: first layer [size + 1, hidden], second [hidden + 1, present]."""

    first: tuple[int, int]
    second: tuple[int, int]

    def cut(self, point: Doubles) -> tuple[Doubles, Doubles]:
        end = self.first[0] * self.first[1]
        return point[:end].reshape(self.first), point[end:].reshape(self.second)


class _Network:
    """One network over the classes that its training rows have."""

    def __init__(self, training: Training, space: Coordinates, codes: Codes, alpha: float) -> None:
        self._training, self._space = training, space
        self._present, self._codes = np.unique(codes, return_inverse=True)
        self._shape = _Shape((space.size + 1, HIDDEN), (HIDDEN + 1, len(self._present)))
        self._penalty = alpha / len(codes)

    def fit(self, classes: int) -> Layered:
        """Return the network over all classes."""
        asking = descend(
            self._start(), _plain, _largest, tolerance=TOLERANCE,
            noise=1e-15 if self._space.exact else 1e-7, iterations=STEPS,
        )  # fmt: skip
        end = _drive(asking, self._evaluate)
        first, second = self._shape.cut(end.point)
        weights, bias = np.zeros((HIDDEN, classes)), np.full(classes, -np.inf)
        weights[:, self._present], bias[self._present] = second[:-1], second[-1]
        inner = self._training.linear(self._space.weights(first), first[-1])
        return Layered(inner, weights, bias, end.converged)

    def _start(self) -> Doubles:
        """Weights with which units of standardised rows have a variance of 1; intercepts of 0."""
        random = generator(self._training.seed, "mlp")
        first, second = random.standard_normal(self._shape.first), random.standard_normal(self._shape.second)
        first[:-1] /= np.sqrt(self._training.x.shape[1])
        second[:-1] /= np.sqrt(HIDDEN)
        first[-1], second[-1] = 0.0, 0.0
        return np.concatenate([first.ravel(), second.ravel()])

    def _evaluate(self, point: Doubles) -> tuple[float, Doubles]:
        first, second = self._shape.cut(point)
        inside = self._space.logits(first).astype(np.float64)
        gates = sigmoid(inside)
        units = inside * gates
        loss, residuals = softmax_residuals(units @ second[:-1] + second[-1], self._codes)
        back = (residuals @ second[:-1].T) * (gates + units * (1 - gates))
        mine = self._space.gradient(back)
        mine[:-1] += self._penalty * first[:-1]
        outer = np.concatenate([units.T @ residuals, residuals.sum(axis=0)[None]])
        outer[:-1] += self._penalty * second[:-1]
        charged = float(np.vdot(first[:-1], first[:-1]) + np.vdot(second[:-1], second[:-1]))
        return loss + 0.5 * self._penalty * charged, np.concatenate([mine.ravel(), outer.ravel()])


def _plain(gradient: Doubles) -> Doubles:
    """No preconditioner: in a whitened metric the first steps would learn by heart."""
    return gradient


def _largest(gradient: Doubles) -> float:
    return float(np.abs(gradient).max(initial=0.0))


def _drive(asking: Asking, evaluate: Callable[[Doubles], tuple[float, Doubles]]) -> Descent:
    point = next(asking)
    while True:
        try:
            point = asking.send(evaluate(point))
        except StopIteration as stop:
            end: Descent = stop.value
            return end
