"""Comparing continuations, scores and findings, part file by part file."""

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pipelines import tables
from pipelines.canonical import canonical_json
from pipelines.columns import numbers
from pipelines.comparison.answer_columns import COLUMNS, AnswerTally, Row, same
from pipelines.comparison.matching import Ints
from pipelines.comparison.records import (
    AgreementComparison,
    AnswersComparison,
    FindingsComparison,
    GenerationsComparison,
    Parting,
    ScoreComparison,
)
from pipelines.comparison.states import Side
from pipelines.findings import read_findings
from pipelines.parts import EXPERIMENTS, GENERATIONS, PartFile, confined

SHOWN: Final = 5
"""Partings that are told one by one."""

Answers = tuple[
    AnswersComparison | None,
    GenerationsComparison | None,
    tuple[AgreementComparison, ...],
    tuple[ScoreComparison, ...],
]


def compare_answers(a: Side, b: Side) -> Answers:
    """Compare rows of answers as they are; then continuations, what was likeliest and scores where both have them."""
    rows = AnswerTally()
    texts, scores = _Texts(), (_Scores("expected_log_probability"), _Scores("choice_log_probabilities"))
    token, choice = agreements = _Agreement("next token"), _Agreement("choice")
    for one, other in _aligned(a, b, GENERATIONS):
        for x, y in zip(one.to_pylist(), other.to_pylist(), strict=True):
            name = x["stimulus_id"]
            rows.add(x, y)
            if x["stopped"] and y["stopped"]:
                texts.add(x, y)
            if x["top_ids"] and y["top_ids"]:
                token.add(name, same=x["top_ids"][0] == y["top_ids"][0])
            scores[0].add(name, x["expected_log_probability"], y["expected_log_probability"])
            if x["choices"] and x["choices"] == y["choices"]:
                choice.add(name, same=x["choice"] == y["choice"])
                for pair in zip(x["choice_log_probabilities"], y["choice_log_probabilities"], strict=True):
                    scores[1].add(name, *pair)
    return (
        rows.result(*(_count(side, GENERATIONS) for side in (a, b))),
        texts.result() if texts.compared else None,
        tuple(found.result() for found in agreements if found.compared),
        tuple(found.result() for found in scores if found.compared),
    )


@dataclass(slots=True)
class _Agreement:
    what: str
    compared: int = 0
    apart: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str, *, same: bool) -> None:
        """Count one stimulus."""
        self.compared += 1
        self.apart += not same
        if not same and len(self.first) < SHOWN:
            self.first.append(name)

    def result(self) -> AgreementComparison:
        """Sum up."""
        return AgreementComparison(self.what, self.compared, self.compared - self.apart, tuple(self.first))


@dataclass(slots=True)
class _Scores:
    score: str
    compared: int = 0
    same: int = 0
    one_sided: int = 0
    sum_a: float = 0.0
    sum_b: float = 0.0
    largest: float = 0.0
    worst: str | None = None

    def add(self, name: str, a: float, b: float) -> None:
        """Count one score; NaN stands for none."""
        if not (math.isfinite(a) and math.isfinite(b)):
            self.one_sided += not same(a, b)
            return
        self.compared += 1
        self.same += same(a, b)
        self.sum_a, self.sum_b = self.sum_a + a, self.sum_b + b
        if abs(b - a) > self.largest:
            self.largest, self.worst = abs(b - a), name

    def result(self) -> ScoreComparison:
        """Sum up."""
        mean_a, mean_b = self.sum_a / self.compared, self.sum_b / self.compared
        counts = (self.compared, self.same, self.one_sided)
        return ScoreComparison(self.score, *counts, mean_a, mean_b, mean_b - mean_a, self.largest, self.worst)


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

    def add(self, a: Row, b: Row) -> None:
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


def compare_findings(a: Side, b: Side) -> FindingsComparison | None:
    """Compare what experiments found in common stimuli; None where no experiment found anything."""
    tally = _Agreement("findings")
    home, back = _homes(a, b), _homes(b, a)
    parts, others = (
        sorted(side.run.manifest.parts_of(EXPERIMENTS), key=lambda part: part.sample_start) for side in (a, b)
    )
    mine, theirs = _PartsOf(a, parts), _PartsOf(b, others)
    for record in parts:
        for sample, found in _by_sample(a, record).items():
            if (number := a.numbers[sample]) >= 0:
                tally.add(a.samples.ids[sample], same=found == theirs.of(int(home[number])))
    for record in others:
        for sample in _by_sample(b, record):
            if (number := b.numbers[sample]) >= 0 and not mine.of(int(back[number])):
                tally.add(b.samples.ids[sample], same=False)
    told = tally.result()
    return FindingsComparison(told.compared, told.same, told.first_apart) if told.compared else None


class _PartsOf:
    """Findings of a run by sample; the part read last is kept."""

    def __init__(self, side: Side, parts: Sequence[PartFile]) -> None:
        self._side, self._parts = side, parts
        self._last: PartFile | None = None
        self._found: dict[int, list[str]] = {}

    def of(self, sample: int) -> list[str]:
        """Return the findings in one sample."""
        at = bisect_right([part.sample_end for part in self._parts], sample)
        if at == len(self._parts):
            return []
        if self._parts[at] != self._last:
            self._last, self._found = self._parts[at], _by_sample(self._side, self._parts[at])
        return self._found.get(sample, [])


def _by_sample(side: Side, record: PartFile) -> dict[int, list[str]]:
    """Experiment and result, as canonical JSON, of the findings of a part."""
    found: dict[int, list[str]] = {}
    for finding in read_findings(confined(side.run.directory, record)):
        found.setdefault(finding.sample_index, []).append(canonical_json([finding.experiment, finding.result]))
    return found


def _homes(a: Side, b: Side) -> Ints:
    """Sample of B for each common stimulus of A, and -1 at the end, for those that have no number."""
    home = np.full(a.numbers.max(initial=-1) + 2, -1)
    known = np.flatnonzero(b.numbers >= 0)
    home[b.numbers[known]] = known
    return home


def _aligned(a: Side, b: Side, table: str) -> Iterator[tuple[tables.Table, tables.Table]]:
    """Rows of `table` for the same stimuli, one row a stimulus, in A's order and at most a part of each at a time."""
    home = _homes(a, b)
    if not (parts := sorted(b.run.manifest.parts_of(table), key=lambda part: part.sample_start)):
        return
    ends = np.array([part.sample_end for part in parts])
    for record in a.run.manifest.parts_of(table):
        one, samples = _read(a, record)
        wanted = home[a.numbers[samples]]
        places = np.searchsorted(ends, wanted, "right")
        for place in np.unique(places[(wanted >= 0) & (places < len(parts))]):
            other, theirs = _read(b, parts[place])
            # What failed in the other run has no row there.
            rows = np.flatnonzero((wanted >= 0) & (places == place) & np.isin(wanted, theirs))
            yield one.take(numbers(rows)), other.take(numbers(np.searchsorted(theirs, wanted[rows])))


def _count(side: Side, table: str) -> int:
    """Rows of `table` whose stimuli are common to both runs."""
    found = 0
    for record in side.run.manifest.parts_of(table):
        with tables.open_part(confined(side.run.directory, record)) as part:
            groups = [tables.read_group(part, i, ("sample_index",)) for i in range(part.num_row_groups)]
        found += sum(int((side.numbers[tables.column(group, "sample_index")] >= 0).sum()) for group in groups)
    return found


def _read(side: Side, record: PartFile) -> tuple[tables.Table, Ints]:
    with tables.open_part(confined(side.run.directory, record)) as part:
        groups = [tables.read_group(part, i, ("sample_index", *COLUMNS)) for i in range(part.num_row_groups)]
        schema = part.schema_arrow
    if not groups:
        return schema.empty_table().select(COLUMNS), np.empty(0, np.int64)
    found = tables.joined(groups, schema)
    return found.select(COLUMNS), tables.column(found, "sample_index").astype(np.int64)
