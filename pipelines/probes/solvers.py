"""Three linear probes, each fitted for several targets and strengths at once on one set of training rows.

logistic         multinomial logistic regression, L2: C * sum of losses + |W|^2 / 2, as LogisticRegression of
                 scikit-learn (two classes: one sigmoid)
ridge            squared error on -1 and 1 with alpha * |W|^2, as RidgeClassifier
mean_difference  the nearest class mean, as NearestCentroid; for two classes the difference of means

All work on standardised rows and leave the intercept free. What they minimise has one optimum; how it is reached is
theirs to choose.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines.probes.design import Basis, Linear, Matrix, Training, gram
from pipelines.probes.lbfgs import Asking, Descent, Doubles, descend
from pipelines.probes.targets import Codes

ITERATIONS: Final = 500
COMPARING: Final = 1e-4
"""Largest entry of the gradient of the mean loss where strengths are compared: the default of scikit-learn."""
FITTING: Final = 1e-6
"""The same where a probe is fitted that is reported."""
SINGLE: Final = 1e-5
"""No smaller one is asked for in single precision."""

Fits = list[list[Linear]]
"""[targets][strengths]"""


def fit_means(
    training: Training, targets: Sequence[Codes], classes: int, strengths: Sequence[float], _tolerance: float = FITTING
) -> Fits:
    """Class means, whatever the strengths."""
    found = []
    for codes in targets:
        hot = _one_hot(codes, classes, training.x)
        counts = hot.sum(axis=0, dtype=np.float64)
        sums = (training.x.T @ hot).astype(np.float64)
        means = sums / np.maximum(counts, 1) - training.mean[:, None]
        means = np.where(counts > 0, means / training.scale[:, None], 0.0)
        bias = np.where(counts > 0, -0.5 * (means**2).sum(axis=0), -np.inf)
        found.append([_linear(training, means, bias)] * len(strengths))
    return found


def fit_ridge(
    training: Training, targets: Sequence[Codes], classes: int, strengths: Sequence[float], _tolerance: float = FITTING
) -> Fits:
    """Solve ridge regressions in closed form: over features, or over rows where there are fewer rows."""
    hot = np.concatenate([_one_hot(codes, classes, training.x) for codes in targets], axis=1).astype(np.float64)
    signs = 2 * hot - 1
    middle = signs.mean(axis=0)
    solve = _primal if len(training.x) > training.x.shape[1] else _dual
    solutions = solve(training, signs - middle, strengths)
    present: NDArray[np.bool_] = hot.max(axis=0) > 0
    found: Fits = []
    for i in range(len(targets)):
        mine = slice(i * classes, (i + 1) * classes)
        bias = np.where(present[mine], middle[mine], -np.inf)
        found.append([_linear(training, weights[:, mine], bias) for weights in solutions])
    return found


def _primal(training: Training, y: Doubles, strengths: Sequence[float]) -> list[Doubles]:
    n, scale = len(training.x), training.scale
    covariance = (gram(training.x) - n * np.outer(training.mean, training.mean)) / np.outer(scale, scale)
    product = (training.x.T @ y.astype(training.x.dtype)).astype(np.float64) / scale[:, None]
    found: list[Doubles] = []
    for alpha in strengths:
        shifted = covariance.copy()
        shifted[np.diag_indices_from(shifted)] += alpha
        found.append(np.linalg.solve(shifted, product).astype(np.float64))
    return found


def _dual(training: Training, y: Doubles, strengths: Sequence[float]) -> list[Doubles]:
    rows = (training.x.astype(np.float64) - training.mean) / training.scale
    values, vectors = np.linalg.eigh(rows @ rows.T)
    inside, back = vectors.T @ y, rows.T @ vectors
    return [back @ (inside / (np.maximum(values, 0) + alpha)[:, None]) for alpha in strengths]


def fit_logistic(
    training: Training, targets: Sequence[Codes], classes: int, strengths: Sequence[float], tolerance: float = FITTING
) -> Fits:
    """Fit all targets and strengths together: each pass over the rows serves all that have not converged."""
    problems = [_Softmax(training, codes, classes, c, tolerance) for codes in targets for c in strengths]
    ends = _drive(training, problems)
    models = [problem.linear(end) for problem, end in zip(problems, ends, strict=True)]
    return [models[i : i + len(strengths)] for i in range(0, len(models), len(strengths))]


class _Softmax:
    """One logistic regression over the classes that its training rows have; parameters [width + 1, present]."""

    def __init__(self, training: Training, codes: Codes, classes: int, c: float, tolerance: float) -> None:
        self._training, self._classes = training, classes
        self.present, self._codes = np.unique(codes, return_inverse=True)
        n, k = len(codes), len(self.present)
        self._rows = np.arange(n)
        # two columns of a softmax share what the one column of a sigmoid is charged for
        self._penalty = (2.0 if k == 2 else 1.0) / (n * c)
        exact = training.design.exact
        shares = np.bincount(self._codes, minlength=k) / n
        start = np.zeros((training.x.shape[1] + 1, k))
        start[-1] = np.log(shares)
        bend = np.maximum(shares * (1 - shares), 1e-3)
        self.asking: Asking = descend(
            start,
            partial(_precondition, training.design.basis, self._penalty, bend),
            tolerance=tolerance if exact else max(tolerance, SINGLE),
            noise=1e-15 if exact else 1e-7,
            iterations=ITERATIONS,
        )

    def residuals(self, logits: Matrix) -> tuple[float, Matrix]:
        """Mean loss, and its derivative by the logits [rows, present], written over them."""
        logits -= logits.max(axis=1, keepdims=True)
        right = logits[self._rows, self._codes].astype(np.float64)
        np.exp(logits, out=logits)
        total = logits.sum(axis=1, keepdims=True)
        loss = float(np.mean(np.log(total[:, 0].astype(np.float64)) - right))
        logits /= total
        logits[self._rows, self._codes] -= 1
        logits /= len(logits)
        return loss, logits

    def penalise(self, loss: float, gradient: Doubles, point: Doubles) -> tuple[float, Doubles]:
        """Add the penalty on weights, which the intercepts are spared."""
        weights = point[:-1]
        gradient[:-1] += self._penalty * weights
        return loss + 0.5 * self._penalty * float(np.vdot(weights, weights)), gradient

    def linear(self, end: Descent) -> Linear:
        """The probe over all classes."""
        weights = np.zeros((self._training.x.shape[1], self._classes))
        bias = np.full(self._classes, -np.inf)
        weights[:, self.present], bias[self.present] = end.point[:-1], end.point[-1]
        return _linear(self._training, weights, bias, converged=end.converged)


def _precondition(basis: Basis, penalty: float, bend: Doubles, gradient: Doubles) -> Doubles:
    """Divide by the diagonal blocks that the Hessian has where all weights are zero, along the axes of the rows.

    `bend` [present] is p * (1 - p) of each class.
    """
    out = gradient / bend
    axes = basis.directions
    inside = axes.T @ gradient[:-1].astype(axes.dtype)
    bent = axes @ (inside / (np.outer(basis.curvatures, bend) + penalty).astype(axes.dtype))
    # off the axes there are no rows: only the penalty curves there
    off = 0.0 if axes.shape[0] == axes.shape[1] else (gradient[:-1] - axes @ inside) / penalty
    out[:-1] = bent + off
    return out


def _drive(training: Training, problems: Sequence[_Softmax]) -> list[Descent]:
    """Answer all problems' questions, pass by pass, until each has ended."""
    ends: dict[int, Descent] = {}
    asked = {i: next(problem.asking) for i, problem in enumerate(problems)}
    while asked:
        answers = _evaluate(training, [(problems[i], point) for i, point in asked.items()])
        going = {}
        for i, answer in zip(asked, answers, strict=True):
            try:
                going[i] = problems[i].asking.send(answer)
            except StopIteration as stop:
                ends[i] = stop.value
        asked = going
    return [ends[i] for i in range(len(problems))]


def _evaluate(training: Training, asked: Sequence[tuple[_Softmax, Doubles]]) -> list[tuple[float, Doubles]]:
    x, mean, scale = training.x, training.mean, training.scale[:, None]
    scaled = np.concatenate([point[:-1] for _, point in asked], axis=1) / scale
    bias = np.concatenate([point[-1] for _, point in asked]) - mean @ scaled
    logits = x @ scaled.astype(x.dtype)
    logits += bias.astype(x.dtype)
    ends = np.cumsum([point.shape[1] for _, point in asked])[:-1]
    parts = [np.ascontiguousarray(part) for part in np.split(logits, ends, axis=1)]
    told = [problem.residuals(part) for (problem, _), part in zip(asked, parts, strict=True)]
    residuals = np.concatenate([part for _, part in told], axis=1)
    sums = residuals.sum(axis=0, dtype=np.float64)
    gradient = np.empty((x.shape[1] + 1, residuals.shape[1]))
    gradient[:-1] = ((x.T @ residuals).astype(np.float64) - np.outer(mean, sums)) / scale
    gradient[-1] = sums
    gradients = np.split(gradient, ends, axis=1)
    return [
        problem.penalise(loss, np.ascontiguousarray(mine), point)
        for (problem, point), (loss, _), mine in zip(asked, told, gradients, strict=True)
    ]


def _one_hot(codes: Codes, classes: int, like: Matrix) -> Matrix:
    hot = np.zeros((len(codes), classes), like.dtype)
    hot[np.arange(len(codes)), codes] = 1
    return hot


def _linear(training: Training, weights: Doubles, bias: Doubles, *, converged: bool = True) -> Linear:
    """Turn weights of standardised rows into weights of the design's rows."""
    scaled = weights / training.scale[:, None]
    return Linear(scaled, bias - training.mean @ scaled, converged)


Fit = Callable[[Training, Sequence[Codes], int, Sequence[float], float], Fits]
FITS: Final[dict[str, Fit]] = {"logistic": fit_logistic, "ridge": fit_ridge, "mean_difference": fit_means}
