"""CoNLL-U, strictly: sentences with their words, surface tokens and comments, every line with its number.

The format is that of https://universaldependencies.org/format.html: ten columns between tabs, sentences parted by
empty lines, comments before the first word, `3-4` for a surface token of several words, `5.1` for a word that is not in
the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipelines.errors import ConfigError
from pipelines.settings import show
from pipelines.stimuli.drafts import fail

CELLS: Final = 10
NONE: Final = "_"
_ID: Final = re.compile(r"(\d{1,6})(?:([-.])(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Word:
    """A syntactic word."""

    line: int
    number: int
    """From 1."""
    form: str
    cells: tuple[str, ...]
    """lemma, upos, xpos, feats, head, deprel, deps, misc as they stand."""


@dataclass(frozen=True, slots=True)
class Token:
    """A surface token: one word, or several that are written as one."""

    line: int
    first: int
    last: int
    form: str
    spaced: bool
    """Whether a space may follow."""


@dataclass(slots=True)
class Sentence:
    """A sentence as it is read."""

    line: int
    comments: dict[str, str] = field(default_factory=dict)
    words: list[Word] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    empty_nodes: int = 0


def read_sentences(path: Path, text: str) -> list[Sentence]:
    """Read all sentences of a file's text. Raises ConfigError listing every line that is wrong."""
    sentences: list[Sentence] = []
    problems: list[str] = []
    for block in _blocks(text):
        try:
            sentences.append(_sentence(block))
        except _Wrong as wrong:
            problems.append(f"{path}:{wrong.line}: {wrong}")
    fail(problems)
    return sentences


class _Wrong(ConfigError):
    """A line that cannot be used."""

    def __init__(self, line: int, said: str) -> None:
        super().__init__(said)
        self.line = line


def _blocks(text: str) -> Iterator[list[tuple[int, str]]]:
    """Lines between empty lines, with their numbers from 1."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if line:
            block.append((number, line))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _sentence(block: list[tuple[int, str]]) -> Sentence:
    sentence = Sentence(block[0][0])
    for number, line in block:
        if line.startswith("#"):
            if sentence.words or sentence.tokens:
                raise _Wrong(number, "a comment among the words; is an empty line missing here?")
            _comment(sentence, number, line)
        else:
            _take(sentence, number, line)
    if not sentence.words:
        raise _Wrong(sentence.line, "comments without words; remove the empty line behind them")
    last = sentence.words[-1].number
    for token in sentence.tokens:
        if token.last > last:
            raise _Wrong(token.line, f"found the token {token.first}-{token.last}, but the last word is {last}")
    for word in sentence.words:
        if not _is_head(word.cells[4], word.number, last):
            found = show(word.cells[4])
            raise _Wrong(word.line, f"found the head {found}, expected another word of the sentence, 0 or {NONE}")
    return sentence


def _is_head(cell: str, word: int, last: int) -> bool:
    if cell == NONE:
        return True
    # As short as an id may be: int() refuses thousands of digits.
    return bool(re.fullmatch(r"[0-9]{1,6}", cell)) and int(cell) <= last and int(cell) != word


def _comment(sentence: Sentence, number: int, line: str) -> None:
    key, equals, value = line[1:].partition("=")
    if not equals or key.strip() not in ("text", "sent_id"):
        return
    if key.strip() in sentence.comments:
        raise _Wrong(number, f"a second `# {key.strip()}` in one sentence; is an empty line missing before it?")
    sentence.comments[key.strip()] = value.strip(" ")


def _take(sentence: Sentence, number: int, line: str) -> None:
    cells = line.split("\t")
    if len(cells) != CELLS:
        hint = "; cells are parted by tabs, not by spaces" if len(cells) == 1 else ""
        raise _Wrong(number, f"found {len(cells)} cells, expected {CELLS}{hint}")
    if empty := [i for i, cell in enumerate(cells, start=1) if not cell]:
        raise _Wrong(number, f"cell {empty[0]} is empty, expected {NONE} where there is no value")
    found = _ID.fullmatch(cells[0])
    if found is None or not cells[0].isascii():
        raise _Wrong(
            number, f"found the id {cells[0]!r}, expected a number, a range such as 3-4 or an empty node as 5.1"
        )
    first, kind = int(found[1]), found[2]
    if kind == ".":
        sentence.empty_nodes += 1
    elif kind == "-":
        _take_range(sentence, number, first, int(found[3]), cells)
    else:
        _take_word(sentence, number, first, cells)


def _take_range(sentence: Sentence, number: int, first: int, last: int, cells: list[str]) -> None:
    following = len(sentence.words) + 1
    if first != following or last <= first:
        raise _Wrong(number, f"found the token {first}-{last}, expected a range that begins with {following}")
    if sentence.tokens and sentence.tokens[-1].last >= first:
        raise _Wrong(number, f"the token {first}-{last} begins inside the one before it")
    sentence.tokens.append(Token(number, first, last, cells[1], spaced=_spaced(cells[9])))


def _take_word(sentence: Sentence, number: int, word: int, cells: list[str]) -> None:
    if word != len(sentence.words) + 1:
        raise _Wrong(number, f"found the word {word}, expected {len(sentence.words) + 1}: words count from 1")
    _check_features(number, cells[5])
    _check_misc(number, cells[9])
    sentence.words.append(Word(number, word, cells[1], tuple(cells[2:])))
    if not sentence.tokens or sentence.tokens[-1].last < word:
        sentence.tokens.append(Token(number, word, word, cells[1], spaced=_spaced(cells[9])))


def _check_features(number: int, cell: str) -> None:
    names = [pair.partition("=") for pair in cell.split("|")] if cell != NONE else []
    for name, equals, value in names:
        if not (name and equals and value):
            raise _Wrong(number, f"found the features {cell!r}, expected {NONE} or Name=Value between bars")
    told = [name for name, _, _ in names]
    if twice := _first_twice(told):
        raise _Wrong(number, f"the feature {twice!r} stands twice; several values are written {twice}=A,B")


def _check_misc(number: int, cell: str) -> None:
    if twice := _first_twice([pair.partition("=")[0] for pair in cell.split("|") if "=" in pair]):
        raise _Wrong(number, f"the key {twice!r} stands twice in MISC; keep one of them")


def _first_twice(names: list[str]) -> str | None:
    return next((name for i, name in enumerate(names) if name in names[:i]), None)


def _spaced(misc: str) -> bool:
    return "SpaceAfter=No" not in misc.split("|")
