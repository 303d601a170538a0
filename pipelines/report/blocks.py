"""What a report is made of, before it is HTML: prose, tables, figures, examples, in sections.

Text of the user (prompts, labels, continuations) is `Quoted` and stays apart from the report's own words until the
template isolates and escapes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Quoted:
    """Text of the user or the model, in any script and direction."""

    text: str
    kind: ClassVar[str] = "quoted"


@dataclass(frozen=True, slots=True)
class Code:
    """A name, hash or selector, always from left to right."""

    text: str
    kind: ClassVar[str] = "code"


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is shown; an empty text where there is none."""

    text: str
    kind: ClassVar[str] = "number"


@dataclass(frozen=True, slots=True)
class Strong:
    """Words of the report that matter most."""

    text: str
    kind: ClassVar[str] = "strong"


Part = str | Quoted | Code | Number | Strong
Prose = tuple[Part, ...]
Cell = Part | Prose
Cells = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph."""

    prose: Prose
    role: str = ""
    """`lead`, `note`, or nothing."""
    kind: ClassVar[str] = "paragraph"


@dataclass(frozen=True, slots=True)
class Points:
    """A list."""

    items: tuple[Prose, ...]
    role: str = ""
    """`warnings`, `limits`, or nothing."""
    kind: ClassVar[str] = "points"


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of each row is its heading."""

    caption: Prose
    head: tuple[Part, ...]
    rows: tuple[Cells, ...]
    kind: ClassVar[str] = "table"


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing with the numbers that it was drawn from."""

    name: str
    """Unique in the report; the file's name without its suffix."""
    title: str
    alt: str
    """What can be seen, for those who cannot see it."""
    caption: Prose
    svg: bytes
    png: bytes
    numbers: Table | None = None
    paper: bool = False
    """Drawn in colours that need a white ground."""
    kind: ClassVar[str] = "figure"


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt with what the model wrote and what was expected."""

    prompt: str
    given: str
    expected: str
    right: bool
    id: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Examples:
    """Several examples."""

    caption: Prose
    examples: tuple[Example, ...]
    kind: ClassVar[str] = "examples"


Block = Paragraph | Points | Table | Figure | Examples


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report with a heading."""

    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Chapter:
    """What one reader of the run contributes: a section, sentences for the summary, and plain numbers."""

    section: Section
    summary: tuple[Prose, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)


def count(n: int, one: str, many: str = "") -> str:
    """Say how many: `1 prompt`, `2,000 prompts`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share in % with one decimal; the sign does not part from the number."""
    return f"{100 * share:.1f}\u00a0%"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}" if names else ""


def codes(names: Sequence[str], between: str = ", ") -> Prose:
    """Return names as code, with a separator between them."""
    parts: list[Part] = []
    for name in names:
        parts += [between, Code(name)] if parts else [Code(name)]
    return tuple(parts)


def quoted_list(texts: Sequence[str], most: int = 8) -> Prose:
    """Texts of the user, separated by commas, at most so many."""
    parts: list[Part] = []
    for text in texts[:most]:
        parts += [", ", Quoted(text)] if parts else [Quoted(text)]
    return (*parts, *([f" and {len(texts) - most} more"] if len(texts) > most else []))
