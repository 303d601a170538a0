"""Which stimuli of a source are used: a filter by labels, de-duplication, a sample."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from pipelines.settings import Settings, refuse, show

LabelName = Annotated[str, Field(min_length=1, max_length=100)]


def _listed(given: Any) -> Any:
    if isinstance(given, (bool, int, float)):
        raise refuse(f"found {show(given)}, expected text or a list of texts: put it in quotes")
    return (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list) else given


Values = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]
"""One value, or several of which any will do."""


class SampleConfig(Settings):
    """A sample, drawn by hashes of seed and id: the same everywhere, and whatever the order of the file."""

    count: Annotated[int, Field(ge=1)]
    """How many stimuli; with `per`, of each value; with `group`, how many groups."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Another seed draws another sample."""
    per: LabelName | None = None
    """A label: `count` stimuli of each of its values, and no stimulus that has none."""
    group: LabelName | None = None
    """A label such as sentence: groups of equal value are drawn whole."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.per is not None and self.group is not None:
            raise refuse("found `per` beside `group`; keep one of the two")
        return self


class SelectConfig(Settings):
    """What of the source is used: first `where`, then `deduplicate`, then `sample`; the manifest counts each step."""

    where: Annotated[dict[LabelName, Values], Field(min_length=1)] | None = None
    """label: value, or label: [values]; a stimulus must fit all of them."""
    deduplicate: Literal["text", "folded"] | None = None
    """Keep the first of those with the same prompt, target and expected text: `text` byte for byte, `folded` after
    NFC, with white space and letter case made equal."""
    sample: SampleConfig | None = None
