"""Vocabularies in which a space is spelt `▁` (U+2581) and a byte `<0x0A>`: SentencePiece's, and Gemma 4's BPE.

A text's own `▁` is encoded as a space is, and comes back as one; so does llama.cpp. Offsets are those of the text as it
was given: a space has one byte though `▁` has three, and the space that some vocabularies put before a text has none.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ember.tokenizer.encoder import Encoded
from ember.tokenizer.merging import Merger
from ember.tokenizer.vocabulary import SPELT_TYPES, TokenType, Vocabulary

SPACE: Final = "▁"
_BYTE: Final = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_REMEMBERED: Final = 1 << 16
"""Words whose ids are kept; then all are forgotten."""
_LONGEST_REMEMBERED: Final = 48
_NONE: Final = np.empty(0, np.int32)


def token_bytes(vocabulary: Vocabulary, token: int) -> bytes:
    """Return the bytes that a token stands for."""
    spelling, kind = vocabulary.tokens[token], vocabulary.types[token]
    if kind == TokenType.BYTE and (found := _BYTE.fullmatch(spelling)):
        return bytes([int(found[1], 16)])
    return spelling if kind in SPELT_TYPES else spelling.replace(SPACE.encode(), b" ")


def byte_tokens(ids: dict[str, int]) -> dict[int, int]:
    """Return the token of each byte that has one, by its spelling."""
    spelt = {byte: ids.get(f"<0x{byte:02X}>") for byte in range(256)}
    return {byte: token for byte, token in spelt.items() if token is not None}


class MetaspaceBPE:
    """Encodes by merging characters; one that is no token becomes its bytes."""

    def __init__(
        self, merger: Merger, ids: dict[str, int], bytes_of: dict[int, int], *, prefix: bool, whole_newlines: bool
    ) -> None:
        """`ids` are of all that merging may leave; `bytes_of` gives the token of a byte.

        `prefix` puts a space before each text; `whole_newlines` takes a run of newlines that is a token for that token,
        whatever merging would make of it.
        """
        self._merger = merger
        self._ids = ids
        self._byte_tokens = bytes_of
        self._prefix = prefix
        self._whole_newlines = whole_newlines
        self._known: dict[str, list[int]] = {}
        self._sizes = _sizes(ids, bytes_of)

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Return ids and widths of each text."""
        return [self._encode(text, prefix=self._prefix) if text else (_NONE, _NONE) for text in texts]

    def encode_inside(self, text: str) -> Encoded:
        """See `Encoder.encode_inside`."""
        return self._encode(text, prefix=False)

    def lacking(self, text: str) -> tuple[int, int] | None:
        """Return the first character, and which byte of it, that no token stands for."""
        if len(self._byte_tokens) == 256:
            return None
        for character in dict.fromkeys(text):
            escaped = SPACE if character == " " else character
            if escaped not in self._ids:
                for byte in escaped.encode():
                    if byte not in self._byte_tokens:
                        return text.index(character), byte
        return None

    def _encode(self, text: str, *, prefix: bool) -> Encoded:
        escaped = (SPACE if prefix else "") + text.replace(" ", SPACE)
        ids = np.fromiter((token for word in self._merger.words(escaped) for token in self._word(word)), np.int32)
        ends = np.cumsum(self._sizes[ids])
        return ids, np.diff(_text_bytes_before(text, prefix=prefix)[ends], prepend=0).astype(np.int32)

    def _word(self, word: str) -> list[int]:
        known = self._known.get(word)
        if known is None:
            known = list(self._merged(word))
            if len(word) <= _LONGEST_REMEMBERED:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[word] = known
        return known

    def _merged(self, word: str) -> Iterator[int]:
        if self._whole_newlines and word in self._ids and not word.strip("\n"):
            yield self._ids[word]
            return
        for symbol in self._merger.merge(word):
            token = self._ids.get(symbol)
            if token is None:
                yield from (self._byte_tokens[byte] for byte in symbol.encode())
            else:
                yield token


def _sizes(ids: dict[str, int], bytes_of: dict[int, int]) -> NDArray[np.int32]:
    """Return the bytes of escaped text that each token stands for."""
    sizes = np.zeros(1 + max([*ids.values(), *bytes_of.values()], default=0), np.int32)
    sizes[list(ids.values())] = [len(text.encode()) for text in ids]
    sizes[list(bytes_of.values())] = 1
    return sizes


def _text_bytes_before(text: str, *, prefix: bool) -> NDArray[np.int64]:
    """Return for each byte of the escaped text, and its end, how many bytes of the text itself stand before it."""
    data = np.frombuffer(text.encode(), np.uint8)
    space = len(SPACE.encode())
    places = np.cumsum(np.where(data == ord(" "), space, 1))
    starts = np.concatenate([[0], places[:-1]]) + (space if prefix else 0)
    own = np.zeros(int(places[-1]) + (space if prefix else 0) + 1, np.int64)
    # A space's one byte counts as soon as the first of its three has been passed.
    own[starts + 1] = 1
    return np.cumsum(own)
