"""The rows of a run's tables before they are written: records that a worker fills, and columns made from them.

A leaf without pyarrow. What is absent has a value of the column's type that says so (-1, an empty text beside a flag);
only a label that a stimulus does not have is null.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines.stimuli.record import Stimulus

LABEL_PREFIX: Final = "label_"
ABSENT: Final = -1
TOKEN_COLUMNS: Final = ("sample_index", "n_tokens", "token_ids", "byte_start", "byte_end", "span_first", "span_end")
"""Columns of the stimuli that the tokenizer and the plan decide."""

_STIMULUS_COLUMNS: Final = (
    "source_index", "id", "template", "prompt", "prompt_sha256", "original_prompt", "reveals",
    "target_text", "target_byte_start", "target_byte_end", "has_expected", "expected", "expect_mode",
)  # fmt: skip

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CaptureRows:
    """What one capture of a unit yields: R rows at each of its layers."""

    name: str
    site: str
    layers: tuple[int, ...]
    """(-1,) for the logits sites."""
    sample_index: Ints
    """[R], as all below."""
    stimulus_id: Sequence[str]
    step: Ints
    """-1 for the prompt, else the decode evaluation."""
    position: Ints
    """Token index in the prompt and its continuation; -1 for a pooled row."""
    token_id: Ints
    """Token read at the position; -1 for a pooled row."""
    produced_id: Ints
    """Token chosen from this row; -1 if none."""
    is_special: NDArray[np.bool_]
    values: NDArray[np.float32]
    """[layers, R, width]."""

    def check(self, sample_start: int, sample_end: int) -> None:
        """Raise ValueError for lengths that disagree, or samples outside [sample_start, sample_end)."""
        n = len(self.sample_index)
        if self.values.shape[:2] != (len(self.layers), n):
            raise ValueError(
                f"capture {self.name!r}: values have shape {self.values.shape}, "
                f"expected [{len(self.layers)} layers, {n} rows, width]"
            )
        columns = (self.stimulus_id, self.step, self.position, self.token_id, self.produced_id, self.is_special)
        if any(len(column) != n for column in columns):
            raise ValueError(f"capture {self.name!r}: its index columns differ in length from its {n} sample indices")
        check_samples(self.sample_index, sample_start, sample_end)


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """How likely texts are after the prompt of one sample; the fields are columns of `generations`."""

    expected_log_probability: float = math.nan
    """Natural logarithm of the expected text's probability; NaN where it was not scored, as -1 and no list below."""
    expected_tokens: int = ABSENT
    expected_bytes: int = ABSENT
    expected_characters: int = ABSENT
    expected_rank: int = ABSENT
    """Rank of its first token, from 1."""
    expected_token_ids: Sequence[int] = ()
    expected_log_probabilities: Sequence[float] = ()
    """Of each of its tokens."""
    expected_ranks: Sequence[int] = ()
    merged: bool = False
    """The expected text merges with the end of the prompt when both are tokenised as one."""
    choices: Sequence[str] = ()
    choice_log_probabilities: Sequence[float] = ()
    """Of each of the choices, as all lists here."""
    choice_tokens: Sequence[int] = ()
    choice_merged: Sequence[bool] = ()
    choice: int = ABSENT
    """Index of the likeliest choice by its log-probability; of equal ones, the first."""
    choice_per_token: int = ABSENT
    """The same by the mean per token."""
    choice_per_byte: int = ABSENT
    """The same by the mean per byte."""
    choice_correct: bool = False
    """The likeliest choice is the expected text, code point by code point."""
    top_ids: Sequence[int] = ()
    """The likeliest next tokens after the prompt, likeliest first."""
    top_log_probabilities: Sequence[float] = ()


NOT_SCORED: Final = ScoreRow()
SCORE_COLUMNS: Final = tuple(field.name for field in fields(ScoreRow))


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """Attention weights that one capture of a unit yields: R query positions at each of its layers."""

    name: str
    layers: tuple[int, ...]
    sample_index: Ints
    """[R], as all below."""
    stimulus_id: Sequence[str]
    position: Ints
    """Token index in the prompt, whose query it is."""
    token_id: Ints
    weights: Sequence[NDArray[np.float32]]
    """For each query position [layers, heads, position + 1]: what each head gives to every position up to it."""

    @property
    def n_rows(self) -> int:
        """Rows of the table: one for each layer, head and query position."""
        return sum(one.shape[0] * one.shape[1] for one in self.weights)


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """What the model said after one prompt, how it compares with the expected text, and how likely texts are."""

    sample_index: int
    stimulus_id: str
    prompt_tokens: int
    token_ids: Sequence[int]
    """New tokens only."""
    text: str
    stopped: str
    """`stop` (a stopping token), `length` or `text` (a stop text); empty where nothing was generated."""
    expected: str | None = None
    expect_mode: str = "exact"
    correct: bool = False
    """What counts, by `expect_mode`; False without expected text, as the three below."""
    match_raw: bool = False
    match_trimmed: bool = False
    match_nfc_trimmed: bool = False
    seed: int = ABSENT
    """What the random numbers come from, with the stimulus_id; -1 where none were drawn."""
    score: ScoreRow = NOT_SCORED


class Sample(Protocol):
    """What the table of stimuli takes from a planned sample."""

    @property
    def sample_index(self) -> int:
        """Place in plan order."""

    @property
    def stimulus(self) -> Stimulus:
        """The prompt and what is known about it."""

    @property
    def tokens(self) -> Ints:
        """Token ids as fed."""

    @property
    def byte_offsets(self) -> Sequence[tuple[int, int]]:
        """For each token, half-open bytes of the prompt's UTF-8."""

    @property
    def span_tokens(self) -> tuple[int, int] | None:
        """Half-open range of tokens that meet the target."""


def check_samples(sample_index: Ints, sample_start: int, sample_end: int) -> None:
    """Raise ValueError if a sample lies outside [sample_start, sample_end)."""
    if len(sample_index) and not sample_start <= sample_index.min() <= sample_index.max() < sample_end:
        raise ValueError(f"a sample index lies outside the unit's range {sample_start} to {sample_end}")


def generation_columns(rows: Sequence[GenerationRow]) -> dict[str, list[Any]]:
    """Columns of `generations`."""
    same = ("sample_index", "stimulus_id", "prompt_tokens", "text", "stopped", "seed", "expect_mode")
    marks = ("correct", "match_raw", "match_trimmed", "match_nfc_trimmed")
    scores = {name: [getattr(row.score, name) for row in rows] for name in SCORE_COLUMNS}
    others: dict[str, list[Any]] = {
        "token_ids": [list(row.token_ids) for row in rows],
        "has_expected": [row.expected is not None for row in rows],
        "expected": [row.expected or "" for row in rows],
    }
    return {name: [getattr(row, name) for row in rows] for name in (*same, *marks)} | scores | others


def stimulus_columns(samples: Sequence[Sample], labels: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of `stimuli`; a label that a stimulus lacks is None."""
    rows = [stimulus_record(sample.stimulus) | _tokens_of(sample) for sample in samples]
    names = (*_STIMULUS_COLUMNS, *TOKEN_COLUMNS, *(LABEL_PREFIX + label for label in labels))
    return {name: [row.get(name) for row in rows] for name in names}


def stimulus_record(stimulus: Stimulus) -> dict[str, Any]:
    """Return a stimulus as its row of the table, without what the tokenizer and the plan add.

    The stimuli's hash is over these records, so that it can be computed again from the table.
    """
    target = stimulus.target
    labels = {LABEL_PREFIX + name: value for name, value in stimulus.labels.items()}
    return {
        "source_index": stimulus.source_index,
        "id": stimulus.id,
        "template": stimulus.template or "",
        "prompt": stimulus.prompt,
        "prompt_sha256": hashlib.sha256(stimulus.prompt.encode()).hexdigest(),
        "original_prompt": stimulus.prompt if stimulus.original is None else stimulus.original,
        "reveals": list(stimulus.reveals),
        "target_text": target.text if target else "",
        "target_byte_start": target.start if target else ABSENT,
        "target_byte_end": target.end if target else ABSENT,
        "has_expected": stimulus.expected is not None,
        "expected": stimulus.expected or "",
        "expect_mode": stimulus.expect_mode,
        **labels,
    }


def _tokens_of(sample: Sample) -> dict[str, Any]:
    first, end = sample.span_tokens or (ABSENT, ABSENT)
    return {
        "sample_index": sample.sample_index,
        "n_tokens": len(sample.tokens),
        "token_ids": sample.tokens,
        "byte_start": [a for a, _ in sample.byte_offsets],
        "byte_end": [b for _, b in sample.byte_offsets],
        "span_first": first,
        "span_end": end,
    }
