"""Stimuli listed in the config or read from a table: which column holds what, and every row accounted for.

No column is dropped silently: what is not mapped becomes a label, or is an error once labels are listed, unless named
in `ignore`. Empty cells of id, expected, target, occurrence and template mean that there is none; so does null in a
label, while an empty text there is a value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipelines.errors import ConfigError
from pipelines.settings import closest, show
from pipelines.stimuli.config import ColumnsConfig, FileConfig, ItemsConfig
from pipelines.stimuli.drafts import Draft, fail
from pipelines.stimuli.readers import Table, read_delimited, read_jsonl

OPTIONAL: Final = ("id", "expected", "target", "occurrence", "template")
SUFFIXES: Final = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"
}  # fmt: skip


def list_items(config: ItemsConfig) -> list[Draft]:
    """Make a draft of each inline item; an item without id is called by its place, from 0."""
    return [
        Draft(
            where=f"stimuli.items.{index}",
            id=item.id if item.id is not None else f"item-{index:06d}",
            prompt=item.prompt,
            labels=dict(item.labels),
            template=item.template,
            reveals=config.reveals if item.reveals is None else item.reveals,
            target=item.target,
            occurrence=item.occurrence,
            expected=item.expected,
        )
        for index, item in enumerate(config.items)
    ]


def read_file(config: FileConfig, base: Path) -> list[Draft]:
    """Read the drafts of a file, in its order; a row without id is called by its place, from 0.

    Raises ConfigError naming file and line for anything that cannot be read, and for columns that do not fit.
    """
    path = base / config.file
    table = _read(path, config.format or _format(path))
    if not table.rows:
        raise ConfigError(f"{path}: no stimuli in this file, expected at least one row")
    columns = map_columns(config.columns, table)
    drafts: list[Draft] = []
    problems: list[str] = []
    for index, (where, row) in enumerate(table.rows):
        try:
            drafts.append(_draft(config, columns, where, index, row))
        except ConfigError as error:
            problems.append(f"{where}: {error}")
    fail(problems)
    return drafts


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".conllu", ".conll"):
        raise ConfigError(f"{path}: CoNLL-U will come with a later version; convert it to one of {', '.join(SUFFIXES)}")
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise ConfigError(f"{path}: found a name that ends in {suffix!r}, expected one of {known}, or give `format`")
    return SUFFIXES[suffix]


def _read(path: Path, kind: str) -> Table:
    if not path.exists():
        raise ConfigError(f"{path}: no such file; paths of stimuli count from the config's folder")
    if not path.is_file():
        raise ConfigError(f"{path}: not a regular file, expected a table of stimuli")
    try:
        if kind == "parquet":
            from pipelines.stimuli.parquet import read_parquet

            return read_parquet(path)
        return read_jsonl(path) if kind == "jsonl" else read_delimited(path, "\t" if kind == "tsv" else ",")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each part of a stimulus comes from, resolved against a file's columns."""

    prompt: str
    optional: Mapping[str, str]
    """id, expected, target, occurrence, template: column; only those that exist."""
    labels: Mapping[str, str]
    """label: column."""


def map_columns(config: ColumnsConfig, table: Table) -> Columns:
    """Resolve a mapping against the columns that are there.

    Raises ConfigError naming mapped columns that do not exist and existing columns that nothing uses.
    """
    asked = {"prompt": config.prompt} | {name: column for name in OPTIONAL if (column := getattr(config, name))}
    optional = {name: asked.get(name, name) for name in OPTIONAL if name in asked or name in table.columns}
    taken = {config.prompt, *optional.values(), *config.ignore}
    labels = config.labels if config.labels is not None else {c: c for c in table.columns if c not in taken}
    wanted = [*asked.values(), *labels.values(), *config.ignore]
    absent = [column for column in dict.fromkeys(wanted) if column not in table.columns]
    known = ", ".join(table.columns)
    problems = [
        f"{table.path}: no column {column!r}{closest(column, list(table.columns))}; columns here: {known}"
        for column in absent
    ]
    unused = [column for column in table.columns if column not in taken and column not in labels.values()]
    if unused and not absent:
        named = ", ".join(map(repr, unused))
        problems.append(f"{table.path}: nothing uses {named}: add to `columns.labels` or to `columns.ignore`")
    fail(problems)
    return Columns(config.prompt, optional, labels)


def _draft(config: FileConfig, columns: Columns, where: str, index: int, row: Mapping[str, Any]) -> Draft:
    def text(name: str) -> str | None:
        column = columns.optional.get(name)
        return None if column is None or row[column] in (None, "") else _text(row[column], column)

    prompt = row[columns.prompt]
    if not isinstance(prompt, str):
        raise ConfigError(f"{columns.prompt}: found {show(prompt)}, expected the prompt's text")
    return Draft(
        where=where,
        id=text("id") or f"row-{index:06d}",
        prompt=prompt,
        labels={label: _text(row[c], c) for label, c in columns.labels.items() if row[c] is not None},
        template=text("template"),
        reveals=config.reveals,
        target=text("target"),
        occurrence=_count(text("occurrence"), columns),
        expected=text("expected"),
    )


def _text(value: Any, column: str) -> str:
    """A cell as text: texts as they are, true and false and whole numbers as they are written."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise ConfigError(f"{column}: found {show(value)}, expected text")


def _count(value: str | None, columns: Columns) -> int | None:
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or not 1 <= int(value[:10]) <= 10**9:
        raise ConfigError(f"{columns.optional['occurrence']}: found {value!r}, expected a count from 1")
    return int(value)
