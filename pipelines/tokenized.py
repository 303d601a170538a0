"""Stimuli as token ids, with the byte range of every token: the only place where the factory tokenises.

Everything is done in the client and once; workers get ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from ember.positions import tokens_of_span
from ember.work import Tokens
from pipelines.stimuli.record import Stimulus

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer

Offsets = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Tokenized:
    """One stimulus as the model reads it."""

    stimulus: Stimulus
    tokens: Tokens
    """[n] token ids as fed, BOS included."""
    offsets: Offsets
    """[n, 2] half-open byte ranges in the prompt's UTF-8; empty for BOS."""
    span_tokens: tuple[int, int] | None
    """Half-open range of tokens that meet the stimulus' target; None without target."""


def tokenize(stimuli: Sequence[Stimulus], tokenizer: "Tokenizer", *, parse_special: bool) -> list[Tokenized]:
    """Encode all stimuli, in their order, BOS by the tokenizer's own rule."""
    return [_tokenize(stimulus, tokenizer, parse_special=parse_special) for stimulus in stimuli]


def special_ids(samples: Sequence[Tokenized], tokenizer: "Tokenizer") -> frozenset[int]:
    """Ids that occur in `samples` and are control tokens."""
    seen = np.unique(np.concatenate([sample.tokens for sample in samples])) if samples else np.zeros(0, np.int32)
    return frozenset(token for token in seen.tolist() if tokenizer.is_special(token))


def _tokenize(stimulus: Stimulus, tokenizer: "Tokenizer", *, parse_special: bool) -> Tokenized:
    encoding = tokenizer.encode(stimulus.prompt, parse_special=parse_special)
    offsets = np.array(encoding.byte_offsets, np.int32).reshape(-1, 2)
    return Tokenized(stimulus, np.array(encoding.ids, np.int32), offsets, _span(stimulus, encoding.byte_offsets))


def _span(stimulus: Stimulus, offsets: list[tuple[int, int]]) -> tuple[int, int] | None:
    if stimulus.target is None:
        return None
    try:
        return tokens_of_span(offsets, stimulus.target.start, stimulus.target.end)
    except InputError:
        return None
