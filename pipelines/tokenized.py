"""Stimuli as token ids, with the byte range of every token: the only place where the factory tokenises.

Everything is done in the client and once; workers get ids. BOS follows the file unless the config says otherwise, and
is never doubled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from ember.positions import tokens_of_span
from ember.work import Tokens
from pipelines.errors import ConfigError
from pipelines.stimuli.record import Stimulus

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer
    from pipelines.config.models import TokenizerConfig

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


def tokenize(stimuli: Sequence[Stimulus], tokenizer: "Tokenizer", settings: "TokenizerConfig") -> list[Tokenized]:
    """Encode all stimuli, in their order. Raises ConfigError when BOS is asked of a vocabulary without one."""
    if settings.add_bos is True and tokenizer.bos_id is None:
        raise ConfigError("tokenizer.add_bos: found true, but the model has no BOS token; write file or false")
    return [_tokenize(stimulus, tokenizer, settings) for stimulus in stimuli]


def special_ids(samples: Sequence[Tokenized], tokenizer: "Tokenizer") -> frozenset[int]:
    """Ids that occur in `samples` and are control tokens."""
    seen = np.unique(np.concatenate([sample.tokens for sample in samples])) if samples else np.zeros(0, np.int32)
    return frozenset(token for token in seen.tolist() if tokenizer.is_special(token))


def _tokenize(stimulus: Stimulus, tokenizer: "Tokenizer", settings: "TokenizerConfig") -> Tokenized:
    by_file = settings.add_bos == "file"
    encoding = tokenizer.encode(stimulus.prompt, add_special=by_file, parse_special=settings.parse_special)
    ids, offsets = list(encoding.ids), list(encoding.byte_offsets)
    if settings.add_bos is True and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids.insert(0, tokenizer.bos_id)
        offsets.insert(0, (0, 0))
    as_int = np.int32
    return Tokenized(
        stimulus, np.array(ids, as_int), np.array(offsets, as_int).reshape(-1, 2), _span(stimulus, offsets)
    )


def _span(stimulus: Stimulus, offsets: list[tuple[int, int]]) -> tuple[int, int] | None:
    if stimulus.target is None:
        return None
    try:
        return tokens_of_span(offsets, stimulus.target.start, stimulus.target.end)
    except InputError:
        return None
