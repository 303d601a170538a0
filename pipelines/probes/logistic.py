"""Multinomial logistic regression, L2: C * sum of losses + |W|^2 / 2, as LogisticRegression of scikit-learn.

Two classes: one sigmoid. All targets and strengths of a set of training rows are fitted together: each pass over the
rows serves all that have not converged.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from pipelines.probes.coordinates import Coordinates, coordinates
from pipelines.probes.design import Linear, Matrix, Training
from pipelines.probes.lbfgs import Asking, Descent, Doubles, descend
from pipelines.probes.targets import Codes

ITERATIONS: Final = 500
FITTING: Final = 1e-6
"""Largest entry of the gradient of the mean loss."""
COMPARING: Final = 1e-4
"""The same in single precision where strengths are compared only: the default of scikit-learn."""
SINGLE: Final = 1e-5
"""No smaller one is asked for in single precision."""


def fit_logistic(
    training: Training, targets: Sequence[Codes], classes: int, strengths: Sequence[float], tolerance: float = FITTING
) -> list[list[Linear]]:
    """Fit until no entry of a gradient is above `tolerance`, or FITTING in double precision, where that is cheap.

    Returns probes by target and strength.
    """
    space = coordinates(training)
    problems = [_Softmax(space, codes, c, tolerance) for codes in targets for c in strengths]
    ends = _drive(space, problems)
    models = [_linear(training, space, classes, *told) for told in zip(problems, ends, strict=True)]
    return [models[i : i + len(strengths)] for i in range(0, len(models), len(strengths))]


def softmax_residuals(logits: Matrix, codes: Codes) -> tuple[float, Matrix]:
    """Mean loss of a softmax, and its derivative by the logits [rows, classes], written over them."""
    rows = np.arange(len(codes))
    logits -= logits.max(axis=1, keepdims=True)
    right = logits[rows, codes].astype(np.float64)
    np.exp(logits, out=logits)
    total = logits.sum(axis=1, keepdims=True)
    loss = float(np.mean(np.log(total[:, 0].astype(np.float64)) - right))
    logits /= total
    logits[rows, codes] -= 1
    logits /= len(logits)
    return loss, logits


class _Softmax:
    """One logistic regression over the classes that its training rows have; points are [size + 1, present]."""

    def __init__(self, space: Coordinates, codes: Codes, c: float, tolerance: float) -> None:
        self.present, self._codes = np.unique(codes, return_inverse=True)
        n, k = len(codes), len(self.present)
        # two columns of a softmax share what the one column of a sigmoid is charged for
        self._penalty = (2.0 if k == 2 else 1.0) / (n * c)
        shares = np.bincount(self._codes, minlength=k) / n
        start = np.zeros((space.size + 1, k))
        start[-1] = np.log(shares)
        bend = np.maximum(shares * (1 - shares), 1e-3)
        self.asking: Asking = descend(
            start,
            partial(space.divide, penalty=self._penalty, bend=bend),
            space.size_of,
            tolerance=min(tolerance, FITTING) if space.exact else max(tolerance, SINGLE),
            noise=1e-15 if space.exact else 1e-7,
            iterations=ITERATIONS,
        )

    def residuals(self, logits: Matrix) -> tuple[float, Matrix]:
        """Mean loss, and its derivative by the logits [rows, present], written over them."""
        return softmax_residuals(logits, self._codes)

    def penalise(self, loss: float, gradient: Doubles, point: Doubles) -> tuple[float, Doubles]:
        """Add the penalty on weights, which the intercepts are spared."""
        weights = point[:-1]
        gradient[:-1] += self._penalty * weights
        return loss + 0.5 * self._penalty * float(np.vdot(weights, weights)), gradient


def _linear(training: Training, space: Coordinates, classes: int, problem: _Softmax, end: Descent) -> Linear:
    """Make the probe over all classes."""
    weights = np.zeros((training.x.shape[1], classes))
    bias = np.full(classes, -np.inf)
    weights[:, problem.present], bias[problem.present] = space.weights(end.point), end.point[-1]
    return training.linear(weights, bias, converged=end.converged)


def _drive(space: Coordinates, problems: Sequence[_Softmax]) -> list[Descent]:
    """Answer all problems' questions, pass by pass, until each has ended."""
    ends: dict[int, Descent] = {}
    asked = {i: next(problem.asking) for i, problem in enumerate(problems)}
    while asked:
        answers = _evaluate(space, [(problems[i], point) for i, point in asked.items()])
        going = {}
        for i, answer in zip(asked, answers, strict=True):
            try:
                going[i] = problems[i].asking.send(answer)
            except StopIteration as stop:
                ends[i] = stop.value
        asked = going
    return [ends[i] for i in range(len(problems))]


def _evaluate(space: Coordinates, asked: Sequence[tuple[_Softmax, Doubles]]) -> list[tuple[float, Doubles]]:
    ends = np.cumsum([point.shape[1] for _, point in asked])[:-1]
    logits = space.logits(np.concatenate([point for _, point in asked], axis=1))
    parts = [np.ascontiguousarray(part) for part in np.split(logits, ends, axis=1)]
    told = [problem.residuals(part) for (problem, _), part in zip(asked, parts, strict=True)]
    gradients = np.split(space.gradient(np.concatenate([part for _, part in told], axis=1)), ends, axis=1)
    return [
        problem.penalise(loss, np.ascontiguousarray(mine), point)
        for (problem, point), (loss, _), mine in zip(asked, told, gradients, strict=True)
    ]
