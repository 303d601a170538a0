"""Comparing rows of answers column by column, and how far apart the numbers in them are."""

import math
from dataclasses import dataclass
from typing import Any, Final

from pipelines import tables
from pipelines.comparison.records import AnswersComparison, ColumnComparison

COLUMNS: Final = tuple(name for name in tables.generations_schema().names if name != "sample_index")
"""What a row of answers holds, whatever its place in the run."""

Row = dict[str, Any]


def same(a: Any, b: Any) -> bool:
    """Whether two values of a column, as Python has them, are the same to the bit; NaN is the same as NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return a.hex() == b.hex()
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def distance(a: Any, b: Any) -> float | None:
    """Largest |b - a| of two floats, or of two lists of as many; None where that is no number."""
    if isinstance(a, float) and isinstance(b, float):
        if same(a, b):
            return 0.0
        return abs(b - a) if math.isfinite(a) and math.isfinite(b) else None
    if not (isinstance(a, list) and isinstance(b, list) and len(a) == len(b)):
        return None
    largest = 0.0
    for found in map(distance, a, b):
        if found is None:
            return None
        largest = max(largest, found)
    return largest


@dataclass(slots=True)
class _Column:
    column: str
    apart: int = 0
    first: str = ""
    largest: float | None = 0.0

    def add(self, name: str, a: Any, b: Any) -> None:
        """Count one stimulus for which it differs."""
        if not self.apart:
            self.first = name
        self.apart += 1
        found = distance(a, b)
        self.largest = None if found is None or self.largest is None else max(self.largest, found)

    def result(self) -> ColumnComparison:
        """Sum up."""
        return ColumnComparison(self.column, self.apart, self.first, self.largest)


class AnswerTally:
    """Rows of answers that are the same, and columns in which others differ."""

    def __init__(self) -> None:
        self._columns = {name: _Column(name) for name in COLUMNS}
        self._compared = self._same = 0

    def add(self, a: Row, b: Row) -> None:
        """Count the row of one stimulus."""
        apart = [name for name in COLUMNS if not same(a[name], b[name])]
        self._compared += 1
        self._same += not apart
        for name in apart:
            self._columns[name].add(a["stimulus_id"], a[name], b[name])

    def result(self, rows_a: int, rows_b: int) -> AnswersComparison | None:
        """Sum up, given how many rows of common stimuli each run has; None where there are none."""
        if not (rows_a or rows_b):
            return None
        columns = tuple(column.result() for column in self._columns.values() if column.apart)
        only_a, only_b = rows_a - self._compared, rows_b - self._compared
        return AnswersComparison(self._compared, self._same, only_a, only_b, columns)
