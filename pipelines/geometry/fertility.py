"""How many tokens a tokenizer needs for words and bytes: by template and by script."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fertility:
    """Sums over words."""

    words: int = 0
    tokens: int = 0
    """Tokens that hold at least one byte of a word; one that holds parts of two counts for both."""
    bytes: int = 0
    characters: int = 0

    def __add__(self, other: "Fertility") -> "Fertility":
        return Fertility(
            self.words + other.words,
            self.tokens + other.tokens,
            self.bytes + other.bytes,
            self.characters + other.characters,
        )

    @property
    def per_word(self) -> float:
        """Tokens of a word."""
        return self.tokens / self.words if self.words else float("nan")

    @property
    def per_byte(self) -> float:
        """Tokens of a byte."""
        return self.tokens / self.bytes if self.bytes else float("nan")

    @property
    def per_character(self) -> float:
        """Tokens of a character."""
        return self.tokens / self.characters if self.characters else float("nan")


def word_fertility(text: str, starts: Sequence[int], ends: Sequence[int]) -> Iterator[tuple[str, Fertility]]:
    """Script and fertility of each word (a run without white space); tokens are given by byte offsets of `text`."""
    spans = [(start, end) for start, end in zip(starts, ends, strict=True) if end > start]
    for found in re.finditer(r"\S+", text):
        first = len(text[: found.start()].encode())
        last = first + len(found[0].encode())
        tokens = sum(start < last and end > first for start, end in spans)
        yield script_of(found[0]), Fertility(1, tokens, last - first, len(found[0]))


def script_of(word: str) -> str:
    """Script of most letters, as Unicode names it (ARABIC, LATIN); of equals the first; `other` without letters."""
    scripts = [unicodedata.name(one, "other").partition(" ")[0] for one in word if unicodedata.category(one)[0] == "L"]
    return max(dict.fromkeys(scripts), key=scripts.count) if scripts else "other"
