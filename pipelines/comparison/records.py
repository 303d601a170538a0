"""What a comparison of two runs says: plain records, from the whole down to one layer."""

from dataclasses import dataclass
from typing import Any

from pipelines.canonical import plain


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of the two runs."""

    directory: str
    name: str
    status: str
    samples: int
    failed: int
    """Samples without rows."""
    semantic_hash: str
    generated: bool
    """Whether its config asks for continuations."""
    scored: bool
    """Whether its config asks for scores."""


@dataclass(frozen=True, slots=True)
class StimuliComparison:
    """Which stimuli both runs have, matched by id."""

    common: int
    only_a: int
    only_b: int
    other_prompt: int
    """Common ones whose prompts have other bytes; they are compared all the same."""
    other_tokens: int
    """Common ones whose prompts have other token ids."""
    first_only_a: tuple[str, ...]
    """Ids of the first few that only A has."""
    first_only_b: tuple[str, ...]
    failed_only_a: int
    """Common ones that failed in A and not in B."""
    failed_only_b: int
    first_failed_only_a: tuple[str, ...]
    """Ids of the first few of them."""
    first_failed_only_b: tuple[str, ...]

    @property
    def one_sided(self) -> bool:
        """Whether a stimulus is in one run alone, or failed in one alone."""
        return bool(self.only_a or self.only_b or self.failed_only_a or self.failed_only_b)


@dataclass(frozen=True, slots=True)
class RowName:
    """A row of a capture."""

    stimulus_id: str
    step: int
    position: int
    """In A; -1 for a mean."""
    head: int | None = None
    """Of attention; None for hidden states."""


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """One layer of a capture; every number is over the rows that both runs have."""

    layer: int
    rows: int
    identical: int
    """Rows that are the same bit for bit."""
    max_relative: float | None
    """Largest max|b - a| / rms(a) of a row (rms(b) where a is all zeros); None without rows."""
    worst: RowName | None
    """The row that has it; None if all are identical."""
    cosine_mean: float | None
    cosine_worst: float | None
    """Cosine of a and b; 1 for identical rows, 0 where one of the two is all zeros."""
    not_finite: int
    """Rows that differ and hold NaN or infinity: counted here and left out of the four numbers above."""
    top1_same: int | None
    """At after_logits, rows whose largest value stands at the same token; of attention, those that attend most to the
    same position; else None."""


@dataclass(frozen=True, slots=True)
class CaptureComparison:
    """One capture, or kept attention, that both runs have. A row of attention is one head of one query position."""

    capture: str
    """Its name in A."""
    capture_b: str
    site: str
    """`attention` for kept attention."""
    position: str
    """The selector in A."""
    position_b: str
    unmatched_a: int
    """Rows of common stimuli that only A has, at each layer."""
    unmatched_b: int
    only_a: tuple[int, ...]
    """Layers that only A has."""
    only_b: tuple[int, ...]
    layers: tuple[LayerComparison, ...]
    """In ascending order."""

    @property
    def first_apart(self) -> int | None:
        """The first layer with a row that differs; None if there is none."""
        return next((found.layer for found in self.layers if found.identical < found.rows), None)

    @property
    def one_sided(self) -> bool:
        """Whether rows of common stimuli or layers are in one run alone."""
        return bool(self.unmatched_a or self.unmatched_b or self.only_a or self.only_b)

    @property
    def identical(self) -> bool:
        """Whether both have the same rows with the same bits."""
        return self.first_apart is None and not self.one_sided


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """A column of the answers that does not hold the same for every common stimulus."""

    column: str
    apart: int
    """Common stimuli for which it differs."""
    first: str
    """The first of them, in A's order."""
    max_difference: float | None
    """Largest |b - a| of its numbers; None where it holds none that could be measured for every stimulus: words,
    counts and token ids, lists of another length, NaN or infinity in one run alone."""


@dataclass(frozen=True, slots=True)
class AnswersComparison:
    """Continuations and scores of common stimuli as they are stored: one row for each, compared in every column."""

    compared: int
    """Rows that both runs have."""
    same: int
    """Those with the same bits in every column."""
    only_a: int
    """Rows of common stimuli that only A has."""
    only_b: int
    columns: tuple[ColumnComparison, ...]
    """Columns that differ, in the order of the table."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two continuations of one stimulus part."""

    stimulus_id: str
    step: int
    """Number of the first token that differs, from 0; where one is the beginning of the other, the number of its
    tokens."""
    text_a: str
    text_b: str


@dataclass(frozen=True, slots=True)
class GenerationsComparison:
    """Continuations of common stimuli for which both runs generated."""

    compared: int
    same_tokens: int
    same_texts: int
    same_first_token: int
    """Those that begin with the same token, which is the likeliest one where decoding is greedy."""
    first_step: int | None
    """The earliest step at which any two part; None if none do."""
    partings: tuple[Parting, ...]
    """The first few that part, earliest step first."""
    expected: int
    """Those with an expected text in both runs."""
    correct_a: int
    correct_b: int


@dataclass(frozen=True, slots=True)
class AgreementComparison:
    """What was likeliest after common stimuli for which both runs say it."""

    what: str
    """`next token`, or `choice` among the same texts."""
    compared: int
    same: int
    first_apart: tuple[str, ...]
    """The first few stimuli for which it is not the same."""


@dataclass(frozen=True, slots=True)
class ScoreComparison:
    """One kind of score, over common stimuli that have it in both runs."""

    score: str
    """Column of the scores."""
    compared: int
    """Scores that are a finite number in both: one for each stimulus, or for each of its choices."""
    same: int
    """Those with the same bits."""
    one_sided: int
    """Scores that are a finite number in one run alone, or another infinity: not among those compared."""
    mean_a: float
    mean_b: float
    mean_difference: float
    """Mean of b - a."""
    max_difference: float
    """Largest |b - a|."""
    worst: str | None
    """The stimulus that has it; None if all are the same."""


@dataclass(frozen=True, slots=True)
class FindingsComparison:
    """What experiments found in common stimuli, where they found something in either run."""

    compared: int
    """Stimuli with findings in at least one of the runs."""
    same: int
    """Those with the same findings of the same experiments."""
    first_apart: tuple[str, ...]
    """The first few stimuli for which they are not the same."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two finished runs side by side."""

    a: RunSide
    b: RunSide
    differences: dict[str, tuple[str, ...]]
    """What made the runs, part by part (model, tokenizer, stimuli, hooks, generation, numerics): a line for each
    difference, none where they agree."""
    notes: tuple[str, ...]
    """What could not be compared, and why."""
    stimuli: StimuliComparison
    captures: tuple[CaptureComparison, ...]
    only_a: tuple[str, ...]
    """Names of captures that only A has."""
    only_b: tuple[str, ...]
    attention: tuple[CaptureComparison, ...]
    """Kept attention that both runs have."""
    attention_only_a: tuple[str, ...]
    attention_only_b: tuple[str, ...]
    answers: AnswersComparison | None
    """None where neither run has any."""
    generations: GenerationsComparison | None
    """None unless both runs generated."""
    agreements: tuple[AgreementComparison, ...]
    scores: tuple[ScoreComparison, ...]
    findings: FindingsComparison | None
    """None where no experiment found anything."""

    @property
    def comparable(self) -> bool:
        """Whether any stimulus is in both runs: without one no row has a counterpart."""
        return self.stimuli.common > 0

    @property
    def alone(self) -> tuple[str, ...]:
        """Sentences on what one run alone asked for: continuations, scores."""
        asked = (("continuations", self.a.generated, self.b.generated), ("scores", self.a.scored, self.b.scored))
        return tuple(f"only {'A' if a else 'B'} has {what}" for what, a, b in asked if a != b)

    @property
    def identical(self) -> bool:
        """Whether both hold the same stimuli, rows, attention, continuations, scores and findings, bit for bit."""
        stimuli, answers, findings = self.stimuli, self.answers, self.findings
        return (
            not (self.one_sided or stimuli.other_prompt or stimuli.other_tokens)
            and all(found.identical for found in (*self.captures, *self.attention))
            and (answers is None or answers.same == answers.compared)
            and (findings is None or findings.same == findings.compared)
        )

    @property
    def one_sided(self) -> bool:
        """Whether stimuli, captures, layers, rows or answers are in one run alone, or a prompt failed in one alone."""
        answers = self.answers
        return bool(
            self.stimuli.one_sided
            or self.only_a or self.only_b or self.attention_only_a or self.attention_only_b
            or any(found.one_sided for found in (*self.captures, *self.attention))
            or (answers and (answers.only_a or answers.only_b))
        )  # fmt: skip

    @property
    def record(self) -> dict[str, Any]:
        """The comparison as plain data."""
        told: dict[str, Any] = {"identical": self.identical, "comparable": self.comparable} | plain(self)
        for name, compared in (("captures", self.captures), ("attention", self.attention)):
            for record, found in zip(told[name], compared, strict=True):
                record["first_apart"] = found.first_apart
        return told
