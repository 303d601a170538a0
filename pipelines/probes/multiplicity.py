"""Intervals that hold for all layers, captures and probes of a problem at once.

Of thirty layers one is above its controls by chance. The draws of groups are the same for all of them, so they tell how
far the most deviant of all strays: in each draw the largest (drawn - found) / spread over the family is noted, and the
interval of each member reaches as many spreads down as the 99.5 % point of that; up likewise. This is the single-step
max-t of Westfall and Young (1993), as simultaneous intervals from a bootstrap (Romano and Wolf 2005). Each side stands
by itself, because the best of several controls, chosen anew in each draw, makes draws lean to one side. Members that go
together, as neighbouring layers do, cost little. What draws of few groups understate is put back: n / (n - 1) in the
variance, and Student's tail for the normal one.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import numpy as np

from pipelines.probes.lbfgs import Doubles
from pipelines.probes.metrics import SURE, Interval
from pipelines.probes.targets import Codes
from pipelines.tails import students

FEWEST: Final = 8
"""Groups that a statement needs: fewer all point the same way by chance more often than in 0.5 % of cases (2 ** -8)."""

MARGINS: Final = (-1.0, 1.0)
"""What a difference of two accuracies can be."""


def fewest(groups: Sequence[Codes]) -> int:
    """Groups in the way of grouping that has fewest."""
    return min(len(np.unique(codes)) for codes in groups)


def together(
    values: Sequence[float],
    drawn: Sequence[Doubles],
    groups: int,
    confidence: float = SURE,
    limits: tuple[float, float] = MARGINS,
) -> list[Interval]:
    """Simultaneous intervals of a family: `values` as found, and each in the same draws of so many groups.

    They end at `limits`, what such a number can be. Of fewer groups than FEWEST there is no interval (NaN).
    """
    if not values:
        return []
    found, table = np.array(values), np.stack(drawn)
    table = table[:, np.isfinite(table).all(axis=0)]
    if groups < FEWEST or not table.shape[1]:
        return [Interval(value, float("nan"), float("nan")) for value in values]
    spread = table.std(axis=1)
    # what is the same in every draw strays nowhere
    strays = (table - found[:, None]) / np.where(spread > 0, spread, np.inf)[:, None]
    down, up = (_reach(most, groups, confidence) * spread for most in (strays.max(axis=0), -strays.min(axis=0)))
    lows, highs = (np.clip(ends, *limits) for ends in (found - down, found + up))
    return [Interval(v, float(low), float(high)) for v, low, high in zip(values, lows, highs, strict=True)]


def _reach(most: Doubles, groups: int, confidence: float) -> float:
    """Spreads to one side: never fewer than a single member of a normal distribution would have."""
    tail = 1 - (1 - confidence) / 2
    normal = max(float(np.quantile(most, tail, method="higher")), NormalDist().inv_cdf(tail))
    return students(normal, groups - 1) * math.sqrt(groups / (groups - 1))
