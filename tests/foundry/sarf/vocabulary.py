"""The vocabulary of sarf-nano: bytes, Arabic letters and marks, and the words of its prompts.

A form is a sequence of letters and marks, one token each; a space before it is a token of its own. Words of prompts
are whole tokens. Both hold at once because no merge joins two letters that can stand side by side in a vocalised form:
there every letter carries a mark, except a last one and the lengtheners ا و ي آ. So the first merge of each word starts
from a letter that is no lengthener, and every later merge has a piece of two letters or more on one side.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.foundry.vocab import CONTROL, NORMAL, byte_characters

LETTERS: Final = "ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىي"
MARKS: Final = "ًٌٍَُِّْ"
SIGNS: Final = "،؛؟"
SPECIALS: Final = ("<|begin|>", "<|end|>")
_LENGTHENERS: Final = frozenset("اويآ")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a `gpt2`-model tokenizer in a GGUF file consists of."""

    tokens: list[str]
    types: list[int]
    merges: list[str]

    @property
    def bos_id(self) -> int:
        """The id of <|begin|>."""
        return len(self.tokens) - 2

    @property
    def eos_id(self) -> int:
        """The id of <|end|>."""
        return len(self.tokens) - 1


def spelled(text: str) -> str:
    """The text as GPT-2 vocabularies write it: one printable character a byte."""
    return "".join(byte_characters()[byte] for byte in text.encode())


def build(words: Iterable[str]) -> Vocabulary:
    """Make the vocabulary in which each of `words` (Arabic, no marks), alone or after a space, is one token."""
    merges = [(spelled(letter)[0], spelled(letter)[1]) for letter in LETTERS + MARKS + SIGNS]
    for word in words:
        _add_word(merges, word)
    made = dict.fromkeys(left + right for left, right in merges)
    tokens = [*byte_characters().values(), *made, *SPECIALS]
    types = [NORMAL] * (len(tokens) - len(SPECIALS)) + [CONTROL] * len(SPECIALS)
    return Vocabulary(tokens, types, [f"{left} {right}" for left, right in merges])


def _add_word(merges: list[tuple[str, str]], word: str) -> None:
    """Append the merges that are missing for the word to become one token; earlier words keep their tokens."""
    for text in (word, " " + word):
        pieces = _pieces(spelled(text), merges)
        while len(pieces) > 1:
            pairs = list(itertools.pairwise(pieces))
            at = next(place for place, pair in enumerate(pairs) if not _in_forms(*pair))
            merges.append(pairs[at])
            pieces[at : at + 2] = ["".join(pairs[at])]


def _in_forms(left: str, right: str) -> bool:
    """Tell whether two pieces can stand side by side in a vocalised form with a space before it."""
    letters = {spelled(letter) for letter in LETTERS}
    return right in letters and left in {spelled(letter) for letter in _LENGTHENERS} | {spelled(" ")}


def _pieces(text: str, merges: list[tuple[str, str]]) -> list[str]:
    """Apply the merges as BPE does: always the earliest one that fits, leftmost first."""
    rank = {pair: n for n, pair in enumerate(merges)}
    pieces = list(text)
    while True:
        places = [(rank[pair], at) for at, pair in enumerate(itertools.pairwise(pieces)) if pair in rank]
        if not places:
            return pieces
        at = min(places)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
