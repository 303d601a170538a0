"""Finding tokens that are spelt out in a text: user-defined ones always, control tokens only on request.

llama.cpp's order, which decides where spellings overlap: the longest spelling first, over the whole text; then the next
one, in what is left between those found. (Of spellings of the same length, the lower id goes first here; there that
is up to the C++ library.)
"""

from collections.abc import Iterable
from dataclasses import dataclass

Piece = str | int
"""A stretch of text, or a token that was spelt out."""


@dataclass(frozen=True, slots=True)
class Spellings:
    """Tokens by their spelling, longest first."""

    entries: tuple[tuple[str, int], ...]
    firsts: frozenset[str]
    """Characters that they begin with: Gemma has thousands of control tokens, and most texts hold no `<`."""

    @classmethod
    def of(cls, entries: Iterable[tuple[str, int]]) -> "Spellings":
        """Sort the pairs of spelling and id; tokens without a spelling cannot be spelt out."""
        found = [entry for entry in entries if entry[0]]
        longest_first = sorted(found, key=lambda entry: (-len(entry[0].encode(errors="replace")), entry[1]))
        return cls(tuple(longest_first), frozenset(spelling[0] for spelling, _ in found))

    def occurring(self, text: str) -> list[str]:
        """Return the spellings that occur in a text, longest first."""
        if self.firsts.isdisjoint(text):
            return []
        return [spelling for spelling, _ in self.entries if spelling in text]

    def split(self, text: str) -> list[Piece]:
        """Cut a text at every spelling found; the pieces' texts and spellings, joined, are the text."""
        pieces: list[Piece] = [text] if text else []
        if self.firsts.isdisjoint(text):
            return pieces
        for spelling, token in self.entries:
            if spelling in text:
                pieces = [part for piece in pieces for part in _cut(piece, spelling, token)]
        return pieces


def _cut(piece: Piece, spelling: str, token: int) -> list[Piece]:
    if isinstance(piece, int):
        return [piece]
    parts: list[Piece] = []
    for index, between in enumerate(piece.split(spelling)):
        if index:
            parts.append(token)
        if between:
            parts.append(between)
    return parts
