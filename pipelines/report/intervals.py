"""Intervals for shares: Wilson's, which takes prompts as independent, and a bootstrap that draws whole groups."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines.tails import students

LEVEL: Final = 0.95
Z: Final = 1.959963984540054
"""The normal distribution's 97.5 % point."""
DRAWS: Final = 2000
SEED: Final = 20260101
PIECE: Final = 2**21
"""Groups that are drawn together."""


@dataclass(frozen=True, slots=True)
class Share:
    """`right` of `n`, with the ends of its interval."""

    n: int
    right: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share; NaN of nothing."""
        return self.right / self.n if self.n else math.nan


def wilson(right: int, n: int) -> Share:
    """Return a share with Wilson's score interval of 95 %; [0, 1] for nothing."""
    if not n:
        return Share(0, 0, 0.0, 1.0)
    share, square = right / n, Z * Z / n
    middle = (share + square / 2) / (1 + square)
    half = Z * math.sqrt(share * (1 - share) / n + square / (4 * n)) / (1 + square)
    # At the ends the interval touches them exactly; rounding may leave 1e-17.
    low = 0.0 if right == 0 else max(0.0, middle - half)
    high = 1.0 if right == n else min(1.0, middle + half)
    return Share(n, right, low, high)


def by_groups(
    values: NDArray[np.float64], groups: NDArray[np.int64], limits: tuple[float, float] = (0.0, 1.0)
) -> tuple[float, float]:
    """Return a 95 % interval of the mean of `values` [n], which lies within `limits`, for other groups of the kind.

    `groups` [n] numbers them from 0. Whole groups are drawn with replacement; percentiles of the means are moved away
    from the mean of all as far as draws of few groups understate it: n / (n - 1) in the variance, and Student's point
    for the normal one. Percentiles alone of five groups hold it in 84 % of cases. The same numbers give the same
    interval: the draws are seeded.
    """
    n_groups = int(groups.max()) + 1
    sums = np.bincount(groups, weights=values, minlength=n_groups).astype(np.float64)
    sizes = np.bincount(groups, minlength=n_groups).astype(np.float64)
    middle = float(sums.sum() / sizes.sum())
    further = students(Z, n_groups - 1) / Z * math.sqrt(n_groups / (n_groups - 1))
    low, high = np.quantile(_drawn_means(sums, sizes), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    ends = (middle + further * (float(end) - middle) for end in (low, high))
    below, above = (min(max(end, limits[0]), limits[1]) for end in ends)
    return below, above


def _drawn_means(sums: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means [draws] of as many groups as there are, drawn with replacement, given the groups' sums and sizes."""
    n_groups = len(sums)
    random = np.random.Generator(np.random.Philox(SEED))
    means = np.empty(DRAWS)
    step = max(1, PIECE // n_groups)
    for start in range(0, DRAWS, step):
        drawn = random.integers(n_groups, size=(min(step, DRAWS - start), n_groups))
        means[start : start + step] = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    return means


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the two-sided p of McNemar's test, exact below 1,000 prompts that one side alone gets right.

    Of prompts that only one side gets right, `only_a` and `only_b` would be equally many if neither were better.
    """
    n = only_a + only_b
    if not n:
        return 1.0
    tail = sum(math.comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, float(2 * tail / 2**n)) if n < 1000 else _normal(only_a, only_b)


def _normal(only_a: int, only_b: int) -> float:
    # Between neighbouring counts the correction would go below zero, and p above 1.
    z = max(0, abs(only_a - only_b) - 1) / math.sqrt(only_a + only_b)
    return math.erfc(z / math.sqrt(2))
