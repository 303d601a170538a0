"""Accuracy, macro-F1, and how sure they are: intervals from resampled groups.

Rows of one group (a root, a prompt, …) are not independent, so whole groups are drawn. With two ways of grouping both
are drawn and a row counts as often as the product says (the pigeonhole bootstrap of Owen 2007).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines.probes.lbfgs import Doubles
from pipelines.probes.targets import Codes

CONFIDENCE: Final = 0.95
"""Of the intervals of accuracy and macro-F1."""
SURE: Final = 0.99
"""Of the interval that says whether a probe is above its controls."""
CHUNK: Final = 128

Right = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Interval:
    """A number and the interval around it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """What became of the rows of each class; all [classes]."""

    rows: Codes
    predicted: Codes
    correct: Codes

    @property
    def f1(self) -> Doubles:
        """2 * correct / (rows + predicted); 0 where a class neither occurs nor is told."""
        return _f1(self.rows, self.predicted, self.correct)

    @property
    def macro_f1(self) -> float:
        """The mean of F1 over classes that occur or are told."""
        return float(_macro_f1(self.rows, self.predicted, self.correct))


def count(codes: Codes, predicted: Codes, classes: int) -> ClassCounts:
    """Count rows by class; a prediction of -1 is of no class."""
    told = predicted[predicted >= 0]
    right = codes[codes == predicted]
    return ClassCounts(*(np.bincount(found, minlength=classes) for found in (codes, told, right)))


class Resampling:
    """How often each cell of rows counts in each of the draws; made once and shared by all probes of a task."""

    def __init__(self, groups: Sequence[Codes], draws: int, random: np.random.Generator) -> None:
        _, self._cell = np.unique(np.stack(groups), axis=1, return_inverse=True)
        self._cell = self._cell.reshape(-1)
        first = np.unique(self._cell, return_index=True)[1]
        weights = np.ones((draws, len(first)), np.float32)
        for codes in groups:
            names, group = np.unique(codes, return_inverse=True)
            drawn = random.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
            weights *= drawn[:, group[first]].astype(np.float32)
        self._weights = weights

    def sums(self, columns: Doubles) -> Doubles:
        """Sum columns [rows, k] over each draw: [draws, k]."""
        cells = np.zeros((self._weights.shape[1], columns.shape[1]))
        np.add.at(cells, self._cell, columns)
        chunks = [self._weights[i : i + CHUNK].astype(np.float64) @ cells for i in range(0, len(self._weights), CHUNK)]
        return np.concatenate(chunks)


def accuracy(right: Right, draws: Resampling) -> Interval:
    """Share of rows that are right."""
    sums = draws.sums(np.stack([right, np.ones(len(right))], axis=1))
    return interval(float(right.mean()), _share(sums[:, 0], sums[:, 1]), CONFIDENCE)


def macro_f1(codes: Codes, predicted: Codes, classes: int, draws: Resampling) -> Interval:
    """Mean F1 of the classes."""
    columns = np.zeros((len(codes), 3 * classes))
    rows = np.arange(len(codes))
    columns[rows, codes] = 1
    told = predicted >= 0
    columns[rows[told], classes + predicted[told]] = 1
    right = codes == predicted
    columns[rows[right], 2 * classes + codes[right]] = 1
    sums = draws.sums(columns)
    drawn = _macro_f1(sums[:, :classes], sums[:, classes : 2 * classes], sums[:, 2 * classes :])
    return interval(count(codes, predicted, classes).macro_f1, drawn, CONFIDENCE)


def margin(right: Right, controls: Sequence[Right], draws: Resampling) -> Interval:
    """Accuracy above the best of the controls, with its interval."""
    return interval(*drawn_margin(right, controls, draws), SURE)


def drawn_margin(right: Right, controls: Sequence[Right], draws: Resampling) -> tuple[float, Doubles]:
    """Accuracy above the best of the controls, which is chosen anew in each draw: as found, and [draws]."""
    sums = draws.sums(np.stack([right, *controls, np.ones(len(right))], axis=1).astype(np.float64))
    shares = _share(sums[:, :-1], sums[:, -1:])
    found = float(right.mean()) - max(float(control.mean()) for control in controls)
    return found, shares[:, 0] - shares[:, 1:].max(axis=1)


def interval(value: float, drawn: Doubles, confidence: float) -> Interval:
    """Percentiles of the draws; draws in which no row was drawn say nothing."""
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return Interval(value, float("nan"), float("nan"))
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(value, float(low), float(high))


def _share(part: Doubles, whole: Doubles) -> Doubles:
    found: Doubles = np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole > 0)
    return found


def _f1(rows: NDArray[np.generic], predicted: NDArray[np.generic], correct: NDArray[np.generic]) -> Doubles:
    total = np.asarray(rows, np.float64) + np.asarray(predicted, np.float64)
    twice = 2 * np.asarray(correct, np.float64)
    return np.divide(twice, total, out=np.zeros(total.shape), where=total > 0)


def _macro_f1(rows: NDArray[np.generic], predicted: NDArray[np.generic], correct: NDArray[np.generic]) -> Doubles:
    there = (np.asarray(rows, np.float64) + np.asarray(predicted, np.float64)) > 0
    total: Doubles = _f1(rows, predicted, correct).sum(axis=-1)
    shares: Doubles = _share(total, np.asarray(there.sum(axis=-1), np.float64))
    return shares
