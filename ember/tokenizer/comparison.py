"""A GGUF's tokenizer beside a Hugging Face `tokenizer.json`: the first difference of ids, and of vocabularies.

Neither is right by itself. A difference says that a number taken with one is not a number taken with the other; and a
vocabulary that differs says that the file is of another model.
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ember.errors import InputError
from ember.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Token:
    """A token as a vocabulary spells it."""

    id: int
    spelling: str


@dataclass(frozen=True, slots=True)
class IdDifference:
    """The first place where the ids of a text differ; None for a side whose ids have ended."""

    index: int
    byte: int
    """Where Ember's token there begins in the text's UTF-8."""
    ours: Token | None
    theirs: Token | None


@dataclass(frozen=True, slots=True)
class VocabularyDifference:
    """Ids that both vocabularies have and spell in two ways, and ids that one alone has."""

    count: int
    first: tuple[Token, Token] | None
    """Ember's and the other one's."""
    only_ours: int
    only_theirs: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison of a text and of all tokens found."""

    path: str
    ids: IdDifference | None
    vocabulary: VocabularyDifference

    @property
    def differs(self) -> bool:
        """Whether ids of the text differ, or any token that both have; tokens that one alone has do not count."""
        return self.ids is not None or self.vocabulary.count > 0

    def lines(self, n_tokens: int) -> list[str]:
        """Return what was found, for people; `n_tokens` is how many ids the text has."""
        words = self.vocabulary
        lines = [f"compared with {self.path}: {_ids_line(self.ids, n_tokens)}"]
        if words.first:
            ours, theirs = words.first
            which = f"{words.count} tokens are spelt differently, the first {ours.id}"
            lines.append(
                f"vocabulary: {which}: {ours.spelling!r} here, {theirs.spelling!r} there: another model's file?"
            )
        else:
            lines.append("vocabulary: every token that both have is the same")
        if words.only_ours or words.only_theirs:
            lines.append(f"vocabulary: {words.only_ours} ids are here alone, {words.only_theirs} there alone")
        return lines


def _ids_line(difference: IdDifference | None, n_tokens: int) -> str:
    if difference is None:
        return f"the {n_tokens} ids are equal"
    ours, theirs = (f"{one.id} {one.spelling!r}" if one else "the end" for one in (difference.ours, difference.theirs))
    return f"first difference at token {difference.index}, byte {difference.byte}: {ours} here, {theirs} there"


class OtherTokenizer:
    """A `tokenizer.json`, run by the `tokenizers` package."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Read the file; raises InputError for one that is no tokenizer."""
        from tokenizers import Tokenizer as Engine

        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"{self.path}: is no file; a Hugging Face tokenizer.json is expected")
        try:
            self._engine: Any = Engine.from_file(str(self.path))
        except Exception as error:  # the package raises Exception itself
            raise InputError(
                f"{self.path}: is no tokenizer.json that this version of `tokenizers` reads: {error}; give the file of "
                "that name from the model's folder"
            ) from None
        spelt = self._engine.get_vocab(with_added_tokens=True)
        self._spellings = {token: text for text, token in spelt.items()}

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of a text; control tokens spelt out in it are text unless `parse_special`."""
        self._engine.encode_special_tokens = not parse_special
        ids: list[int] = self._engine.encode(text, add_special_tokens=add_special).ids
        return ids

    def token(self, token: int) -> Token:
        """Return a token with its spelling."""
        return Token(token, self._spellings.get(token, ""))

    def spellings(self) -> dict[int, str]:
        """Return the spelling of every id that there is; there may be gaps."""
        return self._spellings


def first_id_difference(
    ours: Tokenizer, theirs: OtherTokenizer, text: str, *, parse_special: bool = False
) -> IdDifference | None:
    """Return where the ids of a text differ first, BOS by Ember's rule on both sides; None if they are equal."""
    encoding = ours.encode(text, parse_special=parse_special)
    other = theirs.encode(text, add_special=ours.add_bos, parse_special=parse_special)
    if encoding.ids == other:
        return None
    both = min(len(encoding.ids), len(other))
    unequal = np.flatnonzero(np.array(encoding.ids[:both]) != np.array(other[:both]))
    index = int(unequal[0]) if unequal.size else both
    in_ours, in_theirs = index < len(encoding.ids), index < len(other)
    return IdDifference(
        index=index,
        byte=encoding.byte_offsets[index][0] if in_ours else len(text.encode()),
        ours=Token(encoding.ids[index], ours.spelling(encoding.ids[index])) if in_ours else None,
        theirs=theirs.token(other[index]) if in_theirs else None,
    )


def vocabulary_difference(ours: Tokenizer, theirs: OtherTokenizer) -> VocabularyDifference:
    """Compare all tokens by id. Spellings count as equal if a space stands for `▁`, as converters write some."""
    other = theirs.spellings()
    both = [token for token in range(ours.vocab_size) if token in other]
    different = [token for token in both if not _same(ours.spelling(token), other[token])]
    first = different[0] if different else None
    return VocabularyDifference(
        count=len(different),
        first=None if first is None else (Token(first, ours.spelling(first)), theirs.token(first)),
        only_ours=ours.vocab_size - len(both),
        only_theirs=len(other) - len(both),
    )


def _same(ours: str, theirs: str) -> bool:
    return ours == theirs or ours.replace("▁", " ") == theirs.replace("▁", " ")
