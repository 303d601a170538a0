"""The `stimuli` section where stimuli are read from a file: formats, columns, templates over columns, pairs."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pipelines.settings import InputPath, Listed, Settings, Shorthand, Word, refuse
from pipelines.stimuli.common_config import CommonConfig
from pipelines.stimuli.templates import parse_template

Format = Literal["jsonl", "csv", "tsv", "parquet", "conllu", "camel", "prompt_sets"]


def _slots(text: str) -> str:
    parse_template(text, None)
    return text


Filled = Annotated[str, Field(min_length=1), AfterValidator(_slots)]
"""Text with columns of the file as slots."""


def _label_columns(given: Any) -> Any:
    if isinstance(given, (list, tuple)) and all(isinstance(name, str) for name in given):
        return {name: name for name in given}
    return given


class ColumnsConfig(Settings):
    """Which column of the file holds what."""

    prompt: str = "prompt"
    """The text."""
    id: str | None = None
    """Unique name; by default a column called id, else made from the row's place."""
    expected: str | None = None
    """Expected continuation; by default a column called expected, if there is one."""
    target: str | None = None
    """Text whose tokens a `span` position captures; by default a column called target, if there is one."""
    occurrence: str | None = None
    """Which occurrence of the target counts, from 1; by default a column called occurrence, if there is one."""
    template: str | None = None
    """Name of the template a row was made with; by default a column called template, if there is one."""
    labels: (
        Annotated[dict[Word, str], BeforeValidator(_label_columns, json_schema_input_type=dict[Word, str] | list[str])]
        | None
    ) = None
    """Labels: a list of columns, or label: column. By default every column not named here becomes a label."""
    ignore: Annotated[tuple[str, ...], Listed] = ()
    """Columns to leave out knowingly."""
    missing: Annotated[tuple[str, ...], Listed] | None = None
    """What a cell says where there is no value, such as na or _. In a label only null is no value by default, so an
    empty cell of a CSV is the value '': list "" here to have none. In id, expected, target, occurrence, template and
    slots an empty cell means that there is none, whatever is listed."""


class RowTemplateConfig(Settings):
    """A prompt made of a row; plain text is short for `{text: …}`."""

    text: Filled
    """Slots are columns of the file, such as {word} or {root}; a literal brace is doubled."""
    reveals: Annotated[tuple[str, ...], Listed] = ()
    """Labels that can be read off the text, beside those of the section."""


class PairSideConfig(Settings):
    """One side of a pair; plain text is short for `{prompt: …}`."""

    prompt: str
    """Column with the text."""
    target: str | None = None
    """Column with the text that a `span` position captures; by default the section's."""
    expected: str | None = None
    """Column with the expected continuation; by default the section's."""


class FileConfig(CommonConfig):
    """Stimuli read from a table."""

    file: InputPath
    """A table in one of the formats below, relative to this config."""
    format: Format | None = None
    """jsonl, csv, tsv, parquet, conllu (a treebank: a stimulus for each word), camel (JSON lines of a word and its
    analyses), prompt_sets (JSON: root, pattern, prompts by name); by default what the file's name ends in."""
    columns: ColumnsConfig = ColumnsConfig()
    reveals: Annotated[tuple[str, ...], Listed] = ()
    """Labels that can be read off every prompt."""
    templates: Annotated[dict[Word, Annotated[RowTemplateConfig, Shorthand("text")]], Field(min_length=1)] | None = None
    """Prompts by name, made of each row's columns; by default the column `prompt` is the prompt."""
    target: Filled | None = None
    """With `templates`: text, with slots, whose tokens a `span` position captures."""
    expect: Filled | None = None
    """With `templates`: expected continuation, with slots."""
    pairs: Annotated[dict[Word, Annotated[PairSideConfig, Shorthand("prompt")]], Field(min_length=2)] | None = None
    """Rows that are minimal pairs, or clean and corrupt prompts: role: column. Each role becomes a stimulus with the
    labels `pair` (the row's id) and `role`."""
    analyses: Literal["only", "first", "each"] | None = None
    """With format camel: `only` (default) refuses a word of several analyses, `first` takes the first, `each` makes a
    stimulus of each."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.templates is not None and self.pairs is not None:
            raise refuse("found `pairs` beside `templates`; keep one of the two")
        alone = [key for key in ("target", "expect") if getattr(self, key) is not None and self.templates is None]
        if alone:
            raise refuse(f"found `{alone[0]}` without `templates`; name a column in `columns` instead")
        return self
