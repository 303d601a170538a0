"""Where in its text each state of a capture was taken: what controls that see only the text must be shown apart.

A bag of the whole prompt does not say which of its words a state is of. All words of a sentence have the same bag, so
a word's own spelling would pass for something that no text tells.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ember.positions import Position, resolve, tokens_of_span
from ember.work import ALL_STEPS
from pipelines.config.selectors import parse_position
from pipelines.reading import Run
from pipelines.stimuli.drafts import occurrences

WHOLE: Final = ("last", "mean")
"""Positions of which the whole prompt and its last token tell all there is."""
COLUMNS: Final = (
    "sample_index", "prompt", "token_ids", "byte_start", "byte_end", "span_first", "span_end", "target_text",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """What stands where a state was taken."""

    text: str
    """The target of a span, else the text of the captured tokens; empty for generated steps."""
    tokens: Sequence[int]
    """Captured tokens."""
    beside: Sequence[int] = ()
    """The other tokens of a span, or the continuation before a generated step."""


def places(run: Run, position: str, samples: Sequence[int]) -> list[Place]:
    """Where a capture at `position`, as its record writes it, took the states of `samples`.

    Raises InputError for a sample that has no such position.
    """
    chosen = parse_position(json.loads(position) if position.startswith("{") else position)
    assert isinstance(chosen, Position), "captures leave nothing to labels"
    if chosen.step is not None:
        said = run.generations
        ids = dict(zip(said["sample_index"].to_pylist(), said["token_ids"].to_pylist(), strict=True))
        return [_generated(chosen.step, ids[sample]) for sample in samples]
    rows = {row["sample_index"]: row for row in run.stimuli.select(list(COLUMNS)).to_pylist()}
    return [_in_prompt(chosen, rows[sample]) for sample in samples]


def _generated(step: int, ids: Sequence[int]) -> Place:
    known = ids if step == ALL_STEPS else ids[: step + 1]
    return Place("", known[-1:], known[:-1])


def _in_prompt(position: Position, row: dict[str, Any]) -> Place:
    ids: list[int] = row["token_ids"]
    span = _span(position, row) if position.kind == "span" else None
    at = resolve(position, len(ids), span)
    tokens = [ids[i] for i in at]
    if span is None:
        found = row["prompt"].encode()[row["byte_start"][at[0]] : row["byte_end"][at[-1]]]
        # a token may end inside a character
        return Place(found.decode(errors="replace"), tokens)
    return Place(row["target_text"], tokens, [ids[i] for i in range(*span) if i not in at])


def _span(position: Position, row: dict[str, Any]) -> tuple[int, int]:
    """Half-open range of tokens of the target, or of the occurrence of its text that the position names."""
    if not position.occurrence:
        return row["span_first"], row["span_end"]
    found = occurrences(row["prompt"].encode(), row["target_text"].encode())
    offsets = list(zip(row["byte_start"], row["byte_end"], strict=True))
    return tokens_of_span(offsets, *found[position.occurrence - 1])
