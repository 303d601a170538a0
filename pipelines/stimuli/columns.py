"""Which column of a table holds what; no column is dropped silently.

What is not mapped becomes a label, or is an error once labels are listed, unless named in `ignore` or spare by the
nature of the format.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from pipelines.errors import ConfigError
from pipelines.settings import closest, show
from pipelines.stimuli.drafts import fail
from pipelines.stimuli.readers import Row, Table, other_separator
from pipelines.stimuli.table_config import FileConfig
from pipelines.stimuli.templates import parse_template

ALIKE: Final = 0.8
"""How like `prompt` a column's name must be to be taken for it in a message: Prompt and prompts are, root is not."""
OPTIONAL: Final = ("id", "expected", "target", "occurrence", "template")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each part of a stimulus comes from, resolved against a file's columns."""

    prompt: str
    optional: Mapping[str, str]
    """id, expected, target, occurrence, template: column; only those that exist."""
    labels: Mapping[str, str]
    """label: column."""
    missing: frozenset[str]
    """What a cell says where there is no value, beside an empty one."""
    spelt: tuple[str, ...]
    """Labels that stand in the prompts by the nature of the format."""
    placed: bool
    """Whether the table's own places of targets hold: prompt and target are the format's own."""

    def text(self, row: Row, name: str) -> str | None:
        """Return the row's id, expected, target, occurrence or template; None where it has none."""
        return self.cell(row, self.optional[name]) if name in self.optional else None

    def cell(self, row: Row, column: str) -> str | None:
        """Return a cell as text; None where it is empty or says that there is no value."""
        value = row.get(column)
        return None if value == "" or self._none(value) else text_of(value, column)

    def labels_of(self, row: Row) -> dict[str, str]:
        """Return the row's labels; null and what says that there is no value make none, an empty text does."""
        values = ((label, column, row.get(column)) for label, column in self.labels.items())
        return {label: text_of(v, column) for label, column, v in values if not self._none(v)}

    def _none(self, value: Any) -> bool:
        return value is None or (isinstance(value, str) and value in self.missing)


def text_of(value: Any, column: str) -> str:
    """Return a cell as text: texts as they are, true and false and numbers as they are written."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise ConfigError(f"{column}: found {show(value)}, expected text")


def map_columns(config: FileConfig, table: Table) -> Columns:
    """Resolve a mapping against the columns that are there.

    Raises ConfigError naming mapped columns that do not exist and existing columns that nothing uses.
    """
    given = config.columns
    plain = config.templates is None and config.pairs is None
    asked = {"prompt": given.prompt} if plain else {}
    asked |= {name: column for name in OPTIONAL if (column := getattr(given, name))}
    placed = plain and table.spans is not None and given.prompt == "prompt" and given.target in (None, "target")
    # Where a format knows the target's place, its text belongs to that prompt alone.
    implied = [name for name in OPTIONAL if name != "target" or placed or table.spans is None]
    optional = {name: name for name in implied if name in table.columns}
    optional |= {name: column for name, column in asked.items() if name != "prompt"}
    slots = list(dict.fromkeys(_slots(config)))
    sides = [column for side in (config.pairs or {}).values() for column in (side.prompt, side.target, side.expected)]
    texts = [column for column in sides if column]
    taken = {*asked.values(), *optional.values(), *texts, *given.ignore}
    labels = given.labels
    if labels is None:
        labels = {c: c for c in table.columns if c not in taken and c not in table.unlabelled}
    if plain and "prompt" not in given.model_fields_set and given.prompt not in table.columns:
        raise ConfigError(_unnamed_prompt(table))
    wanted = [
        *((f"columns.{name}", column) for name, column in asked.items()),
        *(("columns.labels", column) for column in labels.values()),
        *(("columns.ignore", column) for column in given.ignore),
        *(("a slot", slot) for slot in slots),
        *(("pairs", column) for column in texts),
    ]
    _check(table, wanted, taken | set(labels.values()) | set(slots) | table.spare)
    spelt = tuple(label for label, column in labels.items() if column in table.spelt) if plain else ()
    return Columns(given.prompt, optional, labels, frozenset(given.missing or ()), spelt, placed)


def _unnamed_prompt(table: Table) -> str:
    """Say how to name the column of prompts, with the likeliest one that is there as an example."""
    said = f"{table.path}: no column 'prompt'; columns here: {', '.join(table.columns)}"
    if other := other_separator(table.columns):
        return said + other
    likely = [*get_close_matches("prompt", table.columns, n=1, cutoff=ALIKE), *table.columns, "word"][0]
    return f"{said}; say in `stimuli` which of them holds the prompts, e.g. `columns: {{prompt: {likely}}}`"


def _check(table: Table, wanted: list[tuple[str, str]], used: set[str]) -> None:
    """Raise ConfigError for columns that are wanted (key of the config, column) and not there, or there and unused."""
    absent = {column: key for key, column in reversed(wanted) if column not in table.columns}
    known = ", ".join(table.columns) + other_separator(table.columns)
    problems = [
        f"{table.path}: no column {column!r}{closest(column, list(table.columns))}; columns here: {known}; "
        f"it is named in `stimuli` by {key if ' ' in key else f'`{key}`'}"
        for column, key in reversed(absent.items())
    ]
    unused = [column for column in table.columns if column not in used]
    if unused and not absent:
        named = ", ".join(map(repr, unused))
        problems.append(f"{table.path}: nothing uses {named}: add to `columns.labels` or to `columns.ignore`")
    fail(problems)


def _slots(config: FileConfig) -> Iterator[str]:
    texts = [template.text for template in (config.templates or {}).values()]
    for text in (*texts, config.target, config.expect):
        if text is not None:
            yield from parse_template(text, None).slots
