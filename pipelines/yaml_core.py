"""YAML 1.2 as configurations need it: the core schema, strict UTF-8, and the place of every value.

PyYAML reads YAML 1.1, where `012` is 10, `12:30` is 750, `no` is false and U+2028 ends a line. Here its scanner and
composer are used, while scalars are resolved by the core schema of YAML 1.2.2 (10.3.2): `012` is 12, `0o14` is 12,
`12:30` and `no` are text. Tags, merge keys and several documents in one file are refused; aliases work within limits.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.composer import Composer, ComposerError
from yaml.nodes import MappingNode, Node, ScalarNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from pipelines.errors import ConfigError

MAX_BYTES: Final = 2 * 1024**2
MAX_DEPTH: Final = 64
MAX_ALIASED: Final = 100_000
"""Values that aliases may repeat, all together."""

Key = str | int
Path_ = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a value stands, counted from 1, and how it was spelt there (scalars only)."""

    line: int
    column: int
    source: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something wrong at a line."""

    line: int
    text: str


@dataclass(slots=True)
class Document:
    """A file's values, with the mark of each value and of each key, and the problems met on the way."""

    file: str
    value: Any = None
    marks: dict[Path_, Mark] = field(default_factory=dict)
    key_marks: dict[Path_, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def mark(self, path: Path_) -> Mark:
        """Mark of the value at `path`, or of the nearest value around it."""
        return next(self.marks[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.marks)

    def has(self, path: Path_) -> bool:
        """Whether the file holds a value at `path`."""
        return path in self.marks

    def report(self, problems: Iterable[Problem]) -> ConfigError:
        """Build the error that lists `problems` in the order of the file, one `file:line: …` each."""
        return ConfigError("\n".join(f"{self.file}:{p.line}: {p.text}" for p in sorted(set(problems))))


def load_yaml(path: Path) -> Document:
    """Read a file. Raises ConfigError for anything that cannot be read as one YAML 1.2 document.

    Duplicate keys and keys that are not text are collected in `problems` (the first of a key's values is kept), so
    that the caller can report them together with its own.
    """
    try:
        if not path.exists():
            raise ConfigError(f"{path}: no such file")
        if not path.is_file():
            raise ConfigError(f"{path}: not a regular file, expected a YAML file")
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: larger than 2 MiB; a config holds settings, put stimuli in a file of their own")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_yaml(data, str(path))


def parse_yaml(data: bytes, file: str) -> Document:
    """Read the bytes of one document; `file` is its name in messages. See `load_yaml`."""
    text = decode_utf8(data, file)
    aliens = _Aliens(text)
    document = Document(file)
    try:
        root = _compose(aliens.hide(text), file)
        document.value = _Construction(document, aliens).build(root, ())
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax(error, file)) from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(_unprintable(text, error, file)) from None
    return document


def _compose(text: str, file: str) -> Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError):  # PyYAML hands an escape such as \UFFFFFFFF to chr() as it is
        mark: Any = loader.get_mark()
        place = f"{file}:{mark.line + 1}:{mark.column + 1}"
        raise ConfigError(f"{place}: this escape is no Unicode character, expected at most \\U0010FFFF") from None


def decode_utf8(data: bytes, file: str) -> str:
    """Decode strictly and drop a byte order mark. Raises ConfigError naming line and byte."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        hint = "; it looks like UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise ConfigError(
            f"{file}:{line}: byte {error.start} is {data[error.start]:#04x}, which is not UTF-8{hint}; save it as UTF-8"
        ) from None


def _syntax(error: yaml.MarkedYAMLError, file: str) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
    context = f" ({error.context})" if error.context else ""
    said = str(error.problem)
    if "'\\t'" in said:
        said += ": a tab cannot indent, use spaces"
    elif "mapping values are not allowed" in said:
        said += ": put text that holds `: ` in quotes"
    return f"{place}: not valid YAML: {said}{context}"


def _unprintable(text: str, error: yaml.reader.ReaderError, file: str) -> str:
    before = text[: error.position]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"{file}:{line}:{column}: U+{int(error.character):04X} may not stand in a YAML file; escape or remove it"


class _Aliens:
    """Stand-ins for U+0085, U+2028 and U+2029: line ends in YAML 1.1, ordinary characters in 1.2.

    They are replaced by private characters that the text holds neither as such nor as an escape, and put back into
    every scalar.
    """

    def __init__(self, text: str) -> None:
        present = [alien for alien in "\x85\u2028\u2029" if alien in text]
        folded = text.lower() if present else ""
        free = (chr(n) for n in range(0xF0000, 0x10FFFE) if chr(n) not in folded and f"{n:x}" not in folded)
        pairs = list(zip(present, free, strict=False))
        self._to_stand_in = {ord(alien): stand_in for alien, stand_in in pairs}
        self._to_alien = {ord(stand_in): alien for alien, stand_in in pairs}

    def hide(self, text: str) -> str:
        return text.translate(self._to_stand_in) if self._to_stand_in else text

    def show(self, text: str) -> str:
        return text.translate(self._to_alien) if self._to_alien else text


def _refused(said: str, mark: Any) -> ComposerError:
    return ComposerError(None, None, said, mark)


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """Composes nodes to a limited depth and refuses what configurations have no use for."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        parser: Any = self  # PyYAML's own annotations leave its parser untyped
        event = parser.peek_event()
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise _refused(f"found the tag {tag}: tags are not allowed here", event.start_mark)
        if self._depth >= MAX_DEPTH:
            raise _refused(f"nested more than {MAX_DEPTH} deep", event.start_mark)
        self._depth += 1
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


_INT = re.compile(r"[-+]?[0-9]+")
_OCT = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, Any]] = (
    dict.fromkeys(("", "~", "null", "Null", "NULL"))
    | dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
    | dict.fromkeys((sign + inf for sign in ("", "+") for inf in (".inf", ".Inf", ".INF")), float("inf"))
    | dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf"))
    | dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))
)
MAX_DIGITS: Final = 400


def resolve_plain(text: str) -> Any:
    """Value of an unquoted scalar by the core schema of YAML 1.2.2, section 10.3.2."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > MAX_DIGITS:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OCT.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    return float(text) if _FLOAT.fullmatch(text) else text


def _paired(text: str, node: Node) -> str:
    """Join surrogate pairs, with which JSON escapes characters beyond U+FFFF: every JSON text is YAML 1.2."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        said = "an escape names half a surrogate pair; write the character itself or \\U and eight digits"
        raise _refused(said, node.start_mark) from None


class _Construction:
    """Builds plain values from nodes, noting where each stands."""

    def __init__(self, document: Document, aliens: _Aliens) -> None:
        self._document = document
        self._aliens = aliens
        self._seen: set[int] = set()
        self._open: list[Node] = []
        self._aliased = 0

    def build(self, node: Node | None, path: Path_) -> Any:
        if node is None:
            self._document.marks[path] = Mark(1, 1)
            return None
        self._check_alias(node)
        self._document.marks[path] = self._mark(node)
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        self._open.append(node)
        value: Any = self._mapping(node, path) if isinstance(node, MappingNode) else self._sequence(node, path)
        self._open.pop()
        return value

    def _check_alias(self, node: Node) -> None:
        """Aliases share nodes: a node met again is a repetition, a node met inside itself has no end."""
        if any(node is outer for outer in self._open):
            raise _refused("an alias stands inside what it repeats", node.start_mark)
        self._aliased += id(node) in self._seen
        self._seen.add(id(node))
        if self._aliased > MAX_ALIASED:
            raise _refused(f"aliases repeat more than {MAX_ALIASED} values", node.start_mark)

    def _mark(self, node: Node) -> Mark:
        source = self._aliens.show(node.value) if isinstance(node, ScalarNode) else None
        return Mark(node.start_mark.line + 1, node.start_mark.column + 1, source)

    def _scalar(self, node: ScalarNode) -> Any:
        text = self._aliens.show(node.value)
        if any("\ud800" <= ch <= "\udfff" for ch in text):
            text = _paired(text, node)
        return resolve_plain(text) if node.style is None else text

    def _sequence(self, node: Node, path: Path_) -> list[Any]:
        return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]

    def _mapping(self, node: MappingNode, path: Path_) -> dict[str, Any]:
        return {key: self.build(child, (*path, key)) for key, child in self._entries(node, path)}

    def _entries(self, node: MappingNode, path: Path_) -> Iterator[tuple[str, Node]]:
        lines: dict[str, Mark] = {}
        for key_node, child in node.value:
            mark = self._mark(key_node)
            key = self._key(key_node, mark)
            if key is None:
                continue
            if key in lines:
                self._problem(mark, f"the key {key!r} is already on line {lines[key].line}: remove one of the two")
                continue
            lines[key] = self._document.key_marks[(*path, key)] = mark
            yield key, child

    def _key(self, node: Node, mark: Mark) -> str | None:
        key = self._scalar(node) if isinstance(node, ScalarNode) else None
        if node.value == "<<" and getattr(node, "style", "") is None:
            self._problem(mark, "merge keys (<<) are not allowed: write the values out")
        elif isinstance(key, str):
            return key
        else:
            shown = f"{mark.source!r} ({type(key).__name__})" if isinstance(node, ScalarNode) else "a collection"
            self._problem(mark, f"found {shown} as a key, expected text: put it in quotes")
        return None

    def _problem(self, mark: Mark, said: str) -> None:
        self._document.problems.append(Problem(mark.line, said))
