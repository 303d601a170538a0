"""Stimuli listed in the config or read from a file: which reader, and every row accounted for.

Empty cells of id, expected, target, occurrence and template mean that there is none; so does null in a label, while an
empty text there is a value.
"""

from pathlib import Path
from typing import Any, Final

from pipelines.errors import ConfigError
from pipelines.stimuli.config import ItemsConfig
from pipelines.stimuli.drafts import Draft, fail
from pipelines.stimuli.readers import Table, read_delimited, read_jsonl
from pipelines.stimuli.row_drafts import RowDrafts
from pipelines.stimuli.table_config import FileConfig

SUFFIXES: Final = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet",
    ".conllu": "conllu", ".conll": "conllu", ".json": "prompt_sets",
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


def read_file(config: FileConfig, base: Path) -> tuple[list[Draft], dict[str, Any]]:
    """Read the drafts of a file, in its order, and say what was read; a row without id is called by its place, from 0.

    Raises ConfigError naming file and line for anything that cannot be read, and for columns that do not fit.
    """
    path = base / config.file
    kind = config.format or _format(path)
    if config.analyses is not None and kind != "camel":
        raise ConfigError(f"stimuli.analyses: found beside the format {kind}, expected `format: camel`; remove one")
    told = {"kind": "file", "format": kind}
    if kind == "prompt_sets":
        return _prompt_sets(config, path), told
    table = _read(path, kind, config.analyses or "only")
    if not table.rows:
        raise ConfigError(f"{path}: no stimuli in this file, expected at least one row")
    make = RowDrafts(config, table)
    drafts: list[Draft] = []
    problems: list[str] = []
    for index, (where, row) in enumerate(table.rows):
        try:
            drafts += make.of_row(index, where, row)
        except ConfigError as error:
            problems.append(f"{where}: {error}")
    fail(problems)
    return drafts, told | {"rows": len(table.rows)} | table.counts


def _prompt_sets(config: FileConfig, path: Path) -> list[Draft]:
    if config.templates is not None or config.pairs is not None or "columns" in config.model_fields_set:
        raise ConfigError("stimuli: prompt_sets bring their own prompts; remove `templates`, `pairs` and `columns`")
    from pipelines.stimuli.prompt_sets import read_prompt_sets

    _check_file(path)
    return read_prompt_sets(path, config.reveals)


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise ConfigError(f"{path}: found a name that ends in {suffix!r}, expected one of {known}, or give `format`")
    return SUFFIXES[suffix]


def _check_file(path: Path) -> None:
    if not path.exists():
        raise ConfigError(f"{path}: no such file; paths of stimuli count from the config's folder")
    if not path.is_file():
        raise ConfigError(f"{path}: not a regular file, expected a table of stimuli")


def _read(path: Path, kind: str, analyses: str) -> Table:
    _check_file(path)
    try:
        if kind == "parquet":
            from pipelines.stimuli.parquet import read_parquet

            return read_parquet(path)
        if kind == "conllu":
            from pipelines.stimuli.treebank import read_treebank

            return read_treebank(path)
        if kind == "camel":
            from pipelines.stimuli.analyses import read_analyses

            return read_analyses(path, analyses)
        return read_jsonl(path) if kind == "jsonl" else read_delimited(path, "\t" if kind == "tsv" else ",")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
