"""From the rows of a table to drafts: a row as it stands, a row in each template, or a row as a pair."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pipelines.errors import ConfigError
from pipelines.settings import show
from pipelines.stimuli.columns import Columns, map_columns
from pipelines.stimuli.drafts import Draft
from pipelines.stimuli.readers import Row, Table
from pipelines.stimuli.table_config import FileConfig, PairSideConfig, RowTemplateConfig
from pipelines.stimuli.templates import Template, fill, parse_template, target_places

PAIR_LABELS: Final = ("pair", "role")


@dataclass(frozen=True, slots=True)
class _Cast:
    """A template ready to be filled."""

    name: str
    config: RowTemplateConfig
    text: Template


class RowDrafts:
    """Makes drafts of a table's rows as a config says; raises ConfigError for columns that do not fit."""

    def __init__(self, config: FileConfig, table: Table) -> None:
        self._config = config
        self._columns: Columns = map_columns(config, table)
        self._spans = table.spans if self._columns.placed else None
        self._spelt = tuple(name for name in self._columns.spelt if name not in config.reveals)
        self._casts = [_Cast(n, t, parse_template(t.text, None)) for n, t in (config.templates or {}).items()]
        self._expect = None if config.expect is None else parse_template(config.expect, None)
        if config.pairs is not None and (taken := [n for n in PAIR_LABELS if n in self._columns.labels]):
            raise ConfigError(
                f"{table.path}: the label {taken[0]!r} is made by `pairs`; give the column another name in "
                "`columns.labels`, or use it as `columns.id`"
            )

    def of_row(self, index: int, where: str, row: Row) -> list[Draft]:
        """Drafts of a row, which stands at `index` from 0. Raises ConfigError for a cell that cannot be used."""
        name = self._columns.text(row, "id") or f"row-{index:06d}"
        if self._casts:
            return [self._filled(where, name, row, cast) for cast in self._casts]
        if self._config.pairs is not None:
            return list(self._sides(where, name, row))
        return [self._plain(index, where, name, row)]

    def _plain(self, index: int, where: str, name: str, row: Row) -> Draft:
        columns = self._columns
        prompt, labels = row.get(columns.prompt), columns.labels_of(row)
        if not isinstance(prompt, str):
            raise ConfigError(f"{columns.prompt}: found {show(prompt)}, expected the prompt's text")
        return Draft(
            where=where,
            id=name,
            prompt=prompt,
            labels=labels,
            template=columns.text(row, "template"),
            reveals=(*self._config.reveals, *(name for name in self._spelt if name in labels)),
            target=columns.text(row, "target"),
            places=None if self._spans is None else (self._spans[index],),
            occurrence=self._occurrence(row),
            expected=columns.text(row, "expected"),
        )

    def _filled(self, where: str, name: str, row: Row, cast: _Cast) -> Draft:
        """Fill a template; a row without a value for a slot gives a draft that says so, for a filter to leave out."""
        columns, config = self._columns, self._config
        reveals = tuple(dict.fromkeys((*config.reveals, *cast.config.reveals)))
        draft = Draft(where, f"{name}.{cast.name}", "", columns.labels_of(row), cast.name, reveals)
        values = {slot: columns.cell(row, slot) for slot in self._slots(cast)}
        empty = [slot for slot, value in values.items() if value is None]
        if empty:
            problem = (
                f"template {cast.name!r} needs the column {empty[0]!r}, which has no value here; leave such rows out "
                "with `select.where`"
            )
            return replace(draft, problem=problem)
        texts = {slot: value for slot, value in values.items() if value is not None}
        filled = fill(cast.text, texts)
        target, places = columns.text(row, "target"), None
        if config.target is not None:
            target, places = target_places(config.target, None, filled, texts)
        expected = columns.text(row, "expected") if self._expect is None else fill(self._expect, texts).text
        return replace(
            draft,
            prompt=filled.text,
            target=target,
            places=places,
            occurrence=self._occurrence(row),
            expected=expected,
        )

    def _slots(self, cast: _Cast) -> list[str]:
        target = parse_template(self._config.target, None).slots if self._config.target is not None else ()
        return list(dict.fromkeys((*cast.text.slots, *target, *(self._expect.slots if self._expect else ()))))

    def _sides(self, where: str, name: str, row: Row) -> Iterator[Draft]:
        columns = self._columns
        for role, side in (self._config.pairs or {}).items():
            yield Draft(
                where=where,
                id=f"{name}.{role}",
                prompt=self._side(row, role, side),
                labels=columns.labels_of(row) | {"pair": name, "role": role},
                template=columns.text(row, "template"),
                reveals=self._config.reveals,
                target=columns.cell(row, side.target) if side.target else columns.text(row, "target"),
                occurrence=self._occurrence(row),
                expected=columns.cell(row, side.expected) if side.expected else columns.text(row, "expected"),
            )

    def _side(self, row: Row, role: str, side: PairSideConfig) -> str:
        prompt = row.get(side.prompt)
        if not isinstance(prompt, str):
            raise ConfigError(f"{side.prompt}: found {show(prompt)}, expected the text of {role!r}")
        return prompt

    def _occurrence(self, row: Row) -> int | None:
        value = self._columns.text(row, "occurrence")
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or not 1 <= int(value[:10]) <= 10**9:
            raise ConfigError(f"{self._columns.optional['occurrence']}: found {value!r}, expected a count from 1")
        return int(value)
