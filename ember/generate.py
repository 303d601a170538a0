"""Continuing a prompt: what `Model.generate` returns, and the text that grows while tokens come."""

import codecs
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ember.errors import InputError
from ember.sampling import check_sampling
from ember.tokenizer import Tokenizer
from ember.tokenizer.encoding import utf8
from ember.work import Sampling

OnToken = Callable[[int, str], None]
"""Told each new token and the text that became complete with it."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A continuation."""

    token_ids: list[int]
    """New tokens only; a stopping token is the last of them."""
    text: str
    """The new tokens as text, without the stopping token, and only what stands before a stop string."""
    stopped: str
    """`stop`: the model ended it; `text`: a stop string came; `length`: max_tokens was reached."""
    seed: int | None = None
    """Seed of the random numbers; None: greedy."""
    findings: list[tuple[str, Any]] = field(default_factory=list)
    """Name and `results()` of each experiment that has some."""


class TextStream:
    """The text of a continuation in bytes: ends it at a stop string, tells what is complete, never half a character."""

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str], stop_ids: Sequence[int], on_token: OnToken | None
    ) -> None:
        self._tokenizer, self._stop_ids, self._on_token = tokenizer, stop_ids, on_token
        self._stops = [one.encode() for one in stop]
        self._bytes = bytearray()
        self._told = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def take(self, _prompt: int, token: int, token_ids: list[int]) -> bool:
        """Take a new token; returns whether a stop string ended the text (see `ember.engine.choosing.Listener`)."""
        if token not in self._stop_ids:
            self._bytes += self._piece(token_ids)
        end = self._end()
        ended = end is not None
        if end is not None:
            del self._bytes[end:]
        self._tell(token, len(self._bytes) - (0 if ended else self._held_back()), final=ended)
        return ended

    def finish(self) -> str:
        """Tell what was held back, and return the whole text."""
        if self._told < len(self._bytes) or self._decoder.getstate()[0]:
            self._tell(-1, len(self._bytes), final=True)
        return self._bytes.decode("utf-8", "replace")

    def _piece(self, token_ids: list[int]) -> bytes:
        # a first token may lose a space that the vocabulary added, a later one never
        before = self._tokenizer.decode_bytes(token_ids[-2:-1])
        return self._tokenizer.decode_bytes(token_ids[-2:])[len(before) :]

    def _end(self) -> int | None:
        found = [at for at in (self._bytes.find(stop) for stop in self._stops) if at >= 0]
        return min(found, default=None)

    def _held_back(self) -> int:
        """Bytes at the end that may be the beginning of a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._bytes)), longest, -1):
                if self._bytes.endswith(stop[:size]):
                    longest = size
                    break
        return longest

    def _tell(self, token: int, until: int, *, final: bool) -> None:
        fresh = self._decoder.decode(bytes(self._bytes[self._told : until]), final)
        self._told = max(self._told, until)
        if self._on_token is not None and (fresh or token >= 0):
            self._on_token(token, fresh)


def check_stop(stop: Sequence[str]) -> list[str]:
    """Return the stop strings. Raises InputError for a bare text, and for empty and broken ones."""
    if isinstance(stop, str) or not all(isinstance(one, str) and one for one in stop):
        raise InputError(f"stop {stop!r}: expected a list of texts that are not empty")
    for one in stop:
        utf8(one, f"stop {one!r}")
    return list(stop)


def sampling_of(temperature: float, top_k: int, top_p: float, seed: int | None, keys: Sequence[str]) -> Sampling | None:
    """Return how tokens are drawn, with a seed of its own where none is given; None at temperature 0: greedy."""
    check_sampling(temperature, top_k, top_p)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64):
        raise InputError(f"seed {seed!r}: expected an integer from 0 to 2**64 - 1")
    if temperature == 0:
        return None
    chosen = secrets.randbits(63) if seed is None else seed
    return Sampling(float(temperature), top_k, float(top_p), chosen, tuple(keys))
