"""Tables of text: JSON Lines, CSV and TSV, strictly UTF-8, each row with its line.

A byte order mark at the start of the file is dropped; nothing else changes. Quotes have a meaning in CSV only: a TSV
cell is the text between two tabs, as typed.
"""

import csv
import io
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self, overload

from pipelines.errors import ConfigError
from pipelines.settings import closest, show
from pipelines.stimuli.drafts import fail
from pipelines.yaml_core import decode_utf8

MAX_BYTES: Final = 1024**3
SEPARATORS: Final = {
    "\t": "give `format: tsv`",
    ";": "Ember reads commas (csv) and tabs (tsv); save the table with one of these",
    "|": "Ember reads commas (csv) and tabs (tsv); save the table with one of these",
    ",": "give `format: csv`",
}
"""What tables are cut at elsewhere, and what to do about it."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that all have the same columns, each with its place for messages."""

    path: Path
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, Row]]
    """(`file:line`, column: value); a column that a row lacks has no value there."""
    spare: frozenset[str] = frozenset()
    """Columns that need not be used."""
    unlabelled: frozenset[str] = frozenset()
    """Columns that become labels only where they are named."""
    spelt: frozenset[str] = frozenset()
    """Columns whose values stand in the prompt by the nature of the format: their labels are declared in `reveals`."""
    spans: Sequence[tuple[int, int]] | None = None
    """Where each row's target lies in the bytes of its prompt, where the format knows."""
    counts: dict[str, int] = field(default_factory=dict)
    """What the file holds, for the manifest."""


@dataclass(frozen=True, slots=True)
class EqualRows(Sequence[tuple[str, Row]]):
    """Rows that all have a value in every column, kept as their cells alone."""

    path: Path
    columns: tuple[str, ...]
    lines: "array[int]"
    """Where each row begins, from 1."""
    cells: list[Sequence[Any]]

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.lines)

    @overload
    def __getitem__(self, at: int) -> tuple[str, Row]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[str, Row]]: ...
    def __getitem__(self, at: int | slice) -> tuple[str, Row] | list[tuple[str, Row]]:
        """Return a row with its place, or a list of them."""
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        return f"{self.path}:{self.lines[at]}", dict(zip(self.columns, self.cells[at], strict=True))


def decoded(path: Path) -> str:
    """Read a text file of stimuli. Raises ConfigError for one that is too large or not UTF-8."""
    if path.stat().st_size > MAX_BYTES:
        raise ConfigError(f"{path}: larger than 1 GiB; split the file into several runs")
    return decode_utf8(path.read_bytes(), str(path))


def read_jsonl(path: Path) -> Table:
    """Read one JSON object a line; blank lines are skipped. Raises ConfigError listing every line that is wrong."""
    columns: tuple[str, ...] = ()
    lines, cells = array("q"), list[Sequence[Any]]()
    problems: list[str] = []
    others: list[str] = []
    for number, line in enumerate(_lines(decoded(path)), start=1):
        if not line.strip():
            continue
        try:
            row = read_object(line)
        except ConfigError as error:
            problems.append(f"{path}:{number}: {error}")
            continue
        columns = columns if lines else tuple(row)
        if said := _other_keys(row, columns):
            others.append(f"{path}:{number}: {said}")
        lines.append(number)
        cells.append(tuple(map(row.get, columns)))
    fail(problems + others)
    return Table(path, columns, EqualRows(path, columns, lines, cells))


def _lines(text: str) -> Iterator[str]:
    """The lines of a text, as `text.split` would give them, one after another."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


class Written(float):
    """A number with a fraction or an exponent that as text is what the file has: the 1.10 of a JSON file is not 1.1."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Make one from its text."""
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __str__(self) -> str:
        """Return the number as it was written."""
        return self.text


def read_object(line: str) -> Row:
    """Read one JSON object strictly. Raises ConfigError saying what is wrong with it."""
    try:
        value = json.loads(line, object_pairs_hook=unique_pairs, parse_constant=no_constant, parse_float=Written)
    except json.JSONDecodeError as error:
        raise ConfigError(f"not valid JSON at column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise ConfigError("not usable JSON: a number of thousands of digits, or nested too deep") from None
    if not isinstance(value, dict):
        raise ConfigError(f"found {show(value)}, expected a JSON object")
    if "\\u" in line:
        refuse_half_characters(value)
    return value


def refuse_half_characters(value: Any, key: str = "") -> None:
    """Raise ConfigError for half of a surrogate pair, which only an escape can make and no UTF-8 could hold."""
    if isinstance(value, str) and any("\ud800" <= ch <= "\udfff" for ch in value):
        raise ConfigError(f"{key!r}: an escape names half a surrogate pair; write the character itself")
    if isinstance(value, dict):
        for name, inner in value.items():
            refuse_half_characters(name, name)
            refuse_half_characters(inner, name)
    elif isinstance(value, list):
        for inner in value:
            refuse_half_characters(inner, key)


def unique_pairs(pairs: list[tuple[str, Any]]) -> Row:
    """Make an object of its members. Raises ConfigError for a key that stands twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ConfigError(f"the key {twice!r} stands twice in this object")
    return row


def no_constant(name: str) -> Any:
    """Refuse NaN and infinities, which Python reads."""
    raise ConfigError(f"found {name}, which is not JSON")


def _other_keys(row: Row, columns: tuple[str, ...]) -> str:
    """What is wrong with a row's keys, compared with those of the first row; empty if nothing."""
    extra = [f"{key!r}{closest(key, list(columns))}" for key in row if key not in columns]
    missing = [repr(key) for key in columns if key not in row]
    said = [f"unknown {', '.join(extra)}"] if extra else []
    said += [f"missing {', '.join(missing)} (write null where there is no value)"] if missing else []
    return f"other fields than the first row: {'; '.join(said)}" if said else ""


def read_delimited(path: Path, delimiter: str) -> Table:
    """Read CSV (`,`) or TSV (tab) with a header row. Raises ConfigError listing every line that is wrong."""
    lines = _split(path, delimiter)
    while lines and not lines[-1][1]:
        lines.pop()
    fail(f"{path}:{number}: a blank line among the rows; remove it" for number, cells in lines if not cells)
    return _table(path, lines)


def _split(path: Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """Cells of each record with the line on which it begins; a blank line has none."""
    text = io.StringIO(decoded(path), newline="")
    usual = csv.field_size_limit(MAX_BYTES)
    lines: list[tuple[int, list[str]]] = []
    before = 0
    try:
        rule: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        reader = csv.reader(text, delimiter=delimiter, quoting=rule, strict=True)
        for cells in reader:
            lines.append((before + 1, cells))
            before = reader.line_num
    except csv.Error as error:
        raise ConfigError(f"{path}:{before + 1}: cannot be split into cells: {error}") from None
    finally:
        csv.field_size_limit(usual)
    return lines


def other_separator(header: Sequence[str]) -> str:
    """Say that a header of one name looks cut at another mark than the file was; empty where it does not."""
    mark = next((mark for mark in SEPARATORS if len(header) == 1 and mark in header[0]), None)
    return f"; the separator looks like {mark!r}: {SEPARATORS[mark]}" if mark else ""


def _table(path: Path, lines: list[tuple[int, list[str]]]) -> Table:
    if not lines:
        raise ConfigError(f"{path}: empty, expected a header row with the names of the columns")
    header = tuple(lines[0][1])
    fail([f"{path}:1: the header names {name!r} twice" for name in sorted({n for n in header if header.count(n) > 1})])
    fail([f"{path}:1: a column has no name; name it" for name in header if not name][:1])
    other = other_separator(header)
    fail(
        f"{path}:{number}: found {len(cells)} cells, expected {len(header)} as in the header{other}"
        for number, cells in lines[1:]
        if len(cells) != len(header)
    )
    numbers = array("q", (number for number, _ in lines[1:]))
    return Table(path, header, EqualRows(path, header, numbers, [cells for _, cells in lines[1:]]))
