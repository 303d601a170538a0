"""Stimuli as token ids, with the byte range of every token: the only place where the factory tokenises.

Everything is done in the client and once; workers get ids. Of a hundred thousand prompts it is kept in a few flat
arrays: a sample is a view of them, made when it is asked for.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from ember.positions import tokens_of_span
from ember.work import Tokens
from pipelines.stimuli.packed import PackedStimuli, pack
from pipelines.stimuli.record import Stimulus

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer

Offsets = NDArray[np.int32]
NO_SPAN: Final = (-1, -1)
_SHORT: Final = 2**16
"""Ends below this are kept in two bytes each."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Token ids of prompts, one prompt after another, with their byte ranges."""

    tokens: Tokens
    starts: "array[int]"
    """[prompts + 1] where the tokens of each prompt start."""
    ends: NDArray[Any]
    """[tokens] where the bytes of each end in its prompt, and those of the next begin: uint16 if all are short."""
    spans: "array[int]"
    """First token and end of each target, prompt after prompt; NO_SPAN without one."""


@dataclass(frozen=True, slots=True)
class Tokenized:
    """One stimulus as the model reads it."""

    stimuli: PackedStimuli
    table: TokenTable
    place: int
    """Among the stimuli."""
    sample_index: int
    """Among the samples that it stands with: in a plan, the place in plan order."""

    @property
    def stimulus(self) -> Stimulus:
        """The stimulus itself, made anew each time."""
        return self.stimuli[self.place]

    @property
    def id(self) -> str:
        """The stimulus' id."""
        return self.stimuli.ids[self.place]

    @property
    def prompt(self) -> str:
        """The stimulus' text."""
        return self.stimuli.prompts[self.place]

    @property
    def tokens(self) -> Tokens:
        """[n] token ids as fed, BOS included."""
        starts = self.table.starts
        return self.table.tokens[starts[self.place] : starts[self.place + 1]]

    @property
    def offsets(self) -> Offsets:
        """[n, 2] half-open byte ranges in the prompt's UTF-8; empty for BOS."""
        starts = self.table.starts
        ends = self.table.ends[starts[self.place] : starts[self.place + 1]]
        found = np.zeros((len(ends), 2), np.int32)
        found[:, 1] = ends
        found[1:, 0] = ends[:-1]
        return found

    @property
    def byte_offsets(self) -> list[tuple[int, int]]:
        """`offsets` as pairs of integers."""
        return [(start, end) for start, end in self.offsets.tolist()]

    @property
    def span_tokens(self) -> tuple[int, int] | None:
        """Half-open range of tokens that meet the stimulus' target; None without target."""
        first, end = self.table.spans[2 * self.place : 2 * self.place + 2]
        return (first, end) if first >= 0 else None


@dataclass(frozen=True, slots=True)
class Samples(Sequence[Tokenized]):
    """Tokenised stimuli, in any order."""

    stimuli: PackedStimuli
    """In the user's order."""
    table: TokenTable
    """In the order of `stimuli`."""
    order: Sequence[int]
    """[samples] which stimulus each sample is."""

    def __len__(self) -> int:
        """Count the samples."""
        return len(self.order)

    @overload
    def __getitem__(self, at: int) -> Tokenized: ...
    @overload
    def __getitem__(self, at: slice) -> list[Tokenized]: ...
    def __getitem__(self, at: int | slice) -> Tokenized | list[Tokenized]:
        """Return a sample, or a list of them."""
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        return Tokenized(self.stimuli, self.table, self.order[at], at % len(self))

    def __iter__(self) -> Iterator[Tokenized]:
        """Go through the samples."""
        return (Tokenized(self.stimuli, self.table, place, at) for at, place in enumerate(self.order))

    @property
    def prompts(self) -> "Prompts":
        """Token ids of each sample."""
        return Prompts(self.table, self.order)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sample."""
        starts = self.table.starts
        return [starts[place + 1] - starts[place] for place in self.order]

    def reordered(self, order: Sequence[int]) -> "Samples":
        """The same samples in another order: `order[i]` says which of them comes at place i."""
        return Samples(self.stimuli, self.table, array("i", (self.order[at] for at in order)))


@dataclass(frozen=True, slots=True)
class Prompts(Sequence[Tokens]):
    """Token ids of samples, as views of one array."""

    table: TokenTable
    order: Sequence[int]

    def __len__(self) -> int:
        """Count the prompts."""
        return len(self.order)

    @overload
    def __getitem__(self, at: int) -> Tokens: ...
    @overload
    def __getitem__(self, at: slice) -> "Prompts": ...
    def __getitem__(self, at: int | slice) -> "Tokens | Prompts":
        """Return the ids of one prompt, or some of the prompts."""
        if isinstance(at, slice):
            return Prompts(self.table, self.order[at])
        place, starts = self.order[at], self.table.starts
        return self.table.tokens[starts[place] : starts[place + 1]]


def tokenize(stimuli: Sequence[Stimulus], tokenizer: "Tokenizer", *, parse_special: bool) -> Samples:
    """Encode all stimuli, in their order, BOS by the tokenizer's own rule."""
    packed = pack(stimuli)
    tokens, ends, starts, spans = array("i"), array("i"), array("q", [0]), array("i")
    for stimulus in packed:
        encoding = tokenizer.encode(stimulus.prompt, parse_special=parse_special)
        tokens.extend(encoding.ids)
        ends.extend(end for _, end in encoding.byte_offsets)
        starts.append(len(tokens))
        spans.extend(_span(stimulus, encoding.byte_offsets) or NO_SPAN)
    table = TokenTable(_frozen(np.array(tokens, np.int32)), starts, _small(np.array(ends, np.int32)), spans)
    return Samples(packed, table, range(len(packed)))


def special_ids(samples: Samples, tokenizer: "Tokenizer") -> frozenset[int]:
    """Ids that occur in `samples` and are control tokens."""
    return frozenset(token for token in np.unique(samples.table.tokens).tolist() if tokenizer.is_special(token))


def _span(stimulus: Stimulus, offsets: list[tuple[int, int]]) -> tuple[int, int] | None:
    if stimulus.target is None:
        return None
    try:
        return tokens_of_span(offsets, stimulus.target.start, stimulus.target.end)
    except InputError:
        return None


def _small(ends: NDArray[np.int32]) -> NDArray[Any]:
    return _frozen(ends.astype(np.uint16) if ends.max(initial=0) < _SHORT else ends)


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    values.setflags(write=False)
    return values
