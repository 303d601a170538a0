"""Three linear probes, each fitted for several targets and strengths at once on one set of training rows.

logistic         multinomial logistic regression, L2: C * sum of losses + |W|^2 / 2, as LogisticRegression of
                 scikit-learn (two classes: one sigmoid)
ridge            squared error on -1 and 1 with alpha * |W|^2, as RidgeClassifier
mean_difference  the nearest class mean, as NearestCentroid; for two classes the difference of means

All work on standardised rows and leave the intercept free. What they minimise has one optimum; how it is reached is
theirs to choose.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines.probes.design import Linear, Matrix, Model, Training, gram
from pipelines.probes.hidden import fit_hidden
from pipelines.probes.lbfgs import Doubles
from pipelines.probes.logistic import FITTING, fit_logistic
from pipelines.probes.targets import Codes

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
        found.append([training.linear(means, bias)] * len(strengths))
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
        found.append([training.linear(weights[:, mine], bias) for weights in solutions])
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


def _one_hot(codes: Codes, classes: int, like: Matrix) -> Matrix:
    hot = np.zeros((len(codes), classes), like.dtype)
    hot[np.arange(len(codes)), codes] = 1
    return hot


Fit = Callable[[Training, Sequence[Codes], int, Sequence[float], float], Sequence[Sequence[Model]]]
FITS: Final[dict[str, Fit]] = {
    "logistic": fit_logistic,
    "ridge": fit_ridge,
    "mean_difference": fit_means,
    "mlp": fit_hidden,
}
"""Probes by name: [targets][strengths] models."""
