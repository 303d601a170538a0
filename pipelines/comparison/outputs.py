"""Comparing continuations and scores, part file by part file."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pipelines import tables
from pipelines.columns import numbers
from pipelines.comparison.matching import Floats, Ints
from pipelines.comparison.records import GenerationsComparison, Parting, ScoreComparison
from pipelines.comparison.states import Side
from pipelines.parts import PartFile, confined

SHOWN: Final = 5
"""Partings that are told one by one."""
COLUMNS: Final = ("stimulus_id", "token_ids", "text", "has_expected", "correct")


def compare_generations(a: Side, b: Side) -> GenerationsComparison | None:
    """Compare the continuations of common stimuli; None unless both runs generated."""
    if not all(side.run.manifest.parts_of("generations") for side in (a, b)):
        return None
    tally = _Texts()
    for one, other in _aligned(a, b, "generations", COLUMNS):
        for row in zip(one.to_pylist(), other.to_pylist(), strict=True):
            tally.add(*row)
    return tally.result()


@dataclass(slots=True)
class _Texts:
    compared: int = 0
    same_tokens: int = 0
    same_texts: int = 0
    same_first: int = 0
    expected: int = 0
    correct_a: int = 0
    correct_b: int = 0
    partings: list[tuple[int, int, Parting]] = field(default_factory=list)
    """Step, number among those compared, and parting: the first few of both."""

    def add(self, a: dict[str, Any], b: dict[str, Any]) -> None:
        """Count one stimulus."""
        ids_a, ids_b = a["token_ids"], b["token_ids"]
        self.compared += 1
        self.same_texts += a["text"] == b["text"]
        self.same_first += ids_a[:1] == ids_b[:1]
        if a["has_expected"] and b["has_expected"]:
            self.expected += 1
            self.correct_a += a["correct"]
            self.correct_b += b["correct"]
        if ids_a == ids_b:
            self.same_tokens += 1
            return
        step = next(
            (i for i, (x, y) in enumerate(zip(ids_a, ids_b, strict=False)) if x != y), min(len(ids_a), len(ids_b))
        )
        parting = Parting(a["stimulus_id"], step, a["text"], b["text"])
        self.partings = heapq.nsmallest(SHOWN, [*self.partings, (step, self.compared, parting)], key=lambda p: p[:2])

    def result(self) -> GenerationsComparison:
        """Sum up."""
        return GenerationsComparison(
            compared=self.compared,
            same_tokens=self.same_tokens,
            same_texts=self.same_texts,
            same_first_token=self.same_first,
            first_step=self.partings[0][0] if self.partings else None,
            partings=tuple(parting for _, _, parting in self.partings),
            expected=self.expected,
            correct_a=self.correct_a,
            correct_b=self.correct_b,
        )


def compare_scores(a: Side, b: Side) -> tuple[ScoreComparison, ...]:
    """Compare every score that both runs have; a score is a column of floats of `generations`, NaN where absent."""
    names = [name for name in _score_columns(a) if name in _score_columns(b)]
    tallies = {name: _Scores() for name in names}
    for one, other in _aligned(a, b, "generations", ("stimulus_id", *names)) if names else ():
        ids = one["stimulus_id"]
        for name, tally in tallies.items():
            tally.add(ids, tables.column(one, name), tables.column(other, name))
    return tuple(tally.result(name) for name, tally in tallies.items())


def _score_columns(side: Side) -> list[str]:
    for record in side.run.manifest.parts_of("generations"):
        with tables.open_part(confined(side.run.directory, record)) as part:
            return [field.name for field in part.schema_arrow if str(field.type) in ("float", "double")]
    return []


@dataclass(slots=True)
class _Scores:
    compared: int = 0
    same: int = 0
    sum_a: float = 0.0
    sum_b: float = 0.0
    sum_difference: float = 0.0
    largest: float = 0.0
    worst: str | None = None

    def add(self, ids: Any, a: Floats, b: Floats) -> None:
        """Count the scores [n] of stimuli `ids`."""
        there = np.flatnonzero(np.isfinite(a) & np.isfinite(b))
        a, b = a[there].astype(np.float64), b[there].astype(np.float64)
        difference = b - a
        self.compared += len(there)
        self.same += int((difference == 0).sum())
        self.sum_a, self.sum_b = self.sum_a + float(a.sum()), self.sum_b + float(b.sum())
        self.sum_difference += float(difference.sum())
        at = int(np.abs(difference).argmax()) if len(there) else 0
        if len(there) and abs(difference[at]) > self.largest:
            self.largest, self.worst = abs(float(difference[at])), ids[int(there[at])].as_py()

    def result(self, name: str) -> ScoreComparison:
        """Sum up."""
        n = self.compared
        mean_a, mean_b, mean = (total / n if n else None for total in (self.sum_a, self.sum_b, self.sum_difference))
        largest = self.largest if n else None
        return ScoreComparison(name, n, self.same, mean_a, mean_b, mean, largest, self.worst)


def _aligned(a: Side, b: Side, table: str, columns: tuple[str, ...]) -> Iterator[tuple[tables.Table, tables.Table]]:
    """Rows of `table` for the same stimuli, one row a stimulus, in A's order and at most a part of each at a time."""
    home = np.full(a.numbers.max(initial=-1) + 1, -1)
    known = np.flatnonzero(b.numbers >= 0)
    home[b.numbers[known]] = known
    parts = sorted(b.run.manifest.parts_of(table), key=lambda part: part.sample_start)
    ends = np.array([part.sample_end for part in parts])
    for record in a.run.manifest.parts_of(table):
        one, samples = _read(a, record, columns)
        wanted = np.where(a.numbers[samples] >= 0, home[a.numbers[samples]], -1)
        places = np.searchsorted(ends, wanted, "right")
        for place in np.unique(places[wanted >= 0]):
            other, theirs = _read(b, parts[place], columns)
            # What failed in the other run has no row there.
            rows = np.flatnonzero((wanted >= 0) & (places == place) & np.isin(wanted, theirs))
            yield one.take(numbers(rows)), other.take(numbers(np.searchsorted(theirs, wanted[rows])))


def _read(side: Side, record: PartFile, columns: tuple[str, ...]) -> tuple[tables.Table, Ints]:
    with tables.open_part(confined(side.run.directory, record)) as part:
        groups = [tables.read_group(part, i, ("sample_index", *columns)) for i in range(part.num_row_groups)]
        schema = part.schema_arrow
    if not groups:
        return schema.empty_table().select(columns), np.empty(0, np.int64)
    found = tables.joined(groups, schema)
    return found.select(columns), tables.column(found, "sample_index").astype(np.int64)
