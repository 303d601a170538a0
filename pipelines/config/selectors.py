"""Layers, positions and filters as a configuration writes them, each read with one plain error.

An intervention may leave a choice to its stimuli: "{name}" stands for what the label `name` of a stimulus says.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeGuard, get_args

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from ember.positions import KINDS, Position, SpanPart
from ember.work import ALL_STEPS
from pipelines.settings import closest, refuse, show

MOST: Final = 2**31
"""Numbers of layers, positions and steps are smaller."""


@dataclass(frozen=True, slots=True)
class FromLabel:
    """What the label `name` of each stimulus says; written "{name}"."""

    name: str

    def __str__(self) -> str:
        return f"{{{self.name}}}"


LayerNumber = int | FromLabel


@dataclass(frozen=True, slots=True)
class LayerRange:
    """Layers `first` to `last`, both included; negative ones count from the end."""

    first: LayerNumber
    last: LayerNumber


LayerChoice = Literal["all"] | tuple[LayerNumber, ...] | LayerRange | FromLabel


@dataclass(frozen=True, slots=True)
class LabelledPosition:
    """A position that stimuli's labels decide: all of it (`kind` is empty), or the number of an index or step."""

    kind: str
    label: FromLabel


PositionChoice = Position | LabelledPosition
Where = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels and the values that select a stimulus, sorted by label; all must hold. Empty: every stimulus."""

_LAYERS: Final = "all, a list of layers such as [0, 5, -1] (-1 is the last), or {from: 2, to: 8}, both included"
WORDS: Final[tuple[Literal["last", "all", "mean", "span"], ...]] = ("last", "all", "mean", "span")
_POSITIONS: Final = (
    "last, all, mean, {index: n}, {from_end: n}, span, {span: first|final|all|mean, occurrence: n}, generated, "
    "or {generated: n}"
)
_NUMBERED: Final[dict[str, Literal["index", "from_end", "generated"]]] = {
    "index": "index",
    "from_end": "from_end",
    "generated": "generated",
}


def read_label(given: Any) -> FromLabel | None:
    """Read "{name}"; None for anything else."""
    found = re.fullmatch(r"\{(\w[\w. -]*)\}", given) if isinstance(given, str) else None
    return FromLabel(found[1]) if found else None


def _is_number(given: Any) -> TypeGuard[int]:
    return isinstance(given, int) and not isinstance(given, bool) and -MOST < given < MOST


def parse_layers(given: Any) -> LayerChoice:
    """Read layers as they are written in a config: all, a list, a range, or what a label says."""
    if isinstance(given, (LayerRange, FromLabel)):
        return given
    if given == "all":
        return "all"
    if (label := read_label(given)) is not None:
        return label
    if isinstance(given, dict) and given.keys() == {"from", "to"}:
        return _range(given)
    numbers = [_layer_number(n) for n in given] if isinstance(given, (list, tuple)) else []
    if not numbers or None in numbers:
        raise refuse(f"found {show(given)}, expected {_LAYERS}{_unquoted(given)}")
    if len(set(numbers)) != len(numbers):
        raise refuse(f"found {show(given)}: a layer is listed twice")
    return tuple(n for n in numbers if n is not None)


def _range(given: dict[str, Any]) -> LayerRange:
    first, last = _layer_number(given["from"]), _layer_number(given["to"])
    if first is None or last is None:
        raise refuse(f"found a range from {show(given['from'])} to {show(given['to'])}, expected numbers of layers")
    if isinstance(first, int) and isinstance(last, int) and (first < 0) == (last < 0) and first > last:
        raise refuse(f"found a range from {first} to {last}, which is empty; write the lower layer first")
    return LayerRange(first, last)


def _layer_number(given: Any) -> LayerNumber | None:
    return given if isinstance(given, FromLabel) or _is_number(given) else read_label(given)


def write_layers(layers: LayerChoice) -> Any:
    """Write layers as a config would: the inverse of `parse_layers`."""
    if isinstance(layers, LayerRange):
        return {"from": _written(layers.first), "to": _written(layers.last)}
    if isinstance(layers, tuple):
        return [_written(layer) for layer in layers]
    return str(layers)


def _written(number: LayerNumber) -> int | str:
    return str(number) if isinstance(number, FromLabel) else number


def layer_labels(layers: LayerChoice) -> Iterator[str]:
    """Names of the labels that decide layers."""
    parts = (layers.first, layers.last) if isinstance(layers, LayerRange) else layers
    for part in parts if isinstance(parts, tuple) else (parts,):
        if isinstance(part, FromLabel):
            yield part.name


def parse_position(given: Any) -> PositionChoice:
    """Read a position as it is written in a config: a word, a mapping with one key, or what a label says."""
    if isinstance(given, (Position, LabelledPosition)):
        return given
    for word in WORDS:
        if given == word:
            return Position(word)
    if given == "generated":
        return Position("generated", ALL_STEPS)
    if (label := read_label(given)) is not None:
        return LabelledPosition("", label)
    if isinstance(given, dict) and isinstance(given.get("index"), int) and given["index"] < 0:
        raise refuse(
            f"found {show(given)}: index counts from 0; to count from the end use from_end (0 is the last token)"
        )
    found = _mapped_position(given) if isinstance(given, dict) else None
    if found is None:
        near = closest(given, [*KINDS]) if isinstance(given, str) else _unquoted(given)
        raise refuse(f"found {show(given)}, expected {_POSITIONS}{near}")
    return found


def _mapped_position(given: dict[str, Any]) -> PositionChoice | None:
    if given.get("span") in get_args(SpanPart) and given.keys() <= {"span", "occurrence"}:
        occurrence = given.get("occurrence", 0)
        if not _is_number(occurrence) or occurrence < ("occurrence" in given):
            return None
        return Position("span", part=given["span"], occurrence=occurrence)
    kind, value = next(iter(given.items()), ("", None))
    if kind not in _NUMBERED or len(given) != 1:
        return None
    if (label := read_label(value)) is not None:
        return LabelledPosition(kind, label)
    return Position(_NUMBERED[kind], value) if _is_number(value) and value >= 0 else None


def _unquoted(given: Any) -> str:
    """Explain {name}, which YAML reads as a mapping unless it is quoted; empty for anything else."""
    lone = isinstance(given, dict) and len(given) == 1 and [*given.values()] == [None]
    return f'; to take it from a label put it in quotes: "{{{next(iter(given))}}}"' if lone else ""


def write_position(position: PositionChoice) -> Any:
    """Write a position as a config would: the inverse of `parse_position`."""
    if isinstance(position, LabelledPosition):
        return {position.kind: str(position.label)} if position.kind else str(position.label)
    if position.kind in _NUMBERED and position.value != ALL_STEPS:
        return {position.kind: position.value}
    if position.kind != "span":
        return position.kind
    return {"span": position.part} | ({"occurrence": position.occurrence} if position.occurrence else {})


def _no_labels(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Refuse what only an intervention may leave to the stimuli."""

    def read(given: Any) -> Any:
        found = parse(given)
        labels = [found.label.name] if isinstance(found, LabelledPosition) else [*layer_labels(found)]
        if labels:
            raise refuse(
                f"found {{{labels[0]}}}: rows of one capture have the same layers and kind of position for all "
                "stimuli; only interventions take them from labels (select stimuli with `where`)"
            )
        return found

    return read


def parse_where(given: Any) -> Where:
    """Read a filter: labels, each with a value or a list of values."""
    if isinstance(given, tuple):
        return given
    if not isinstance(given, dict) or not given:
        raise refuse(f"found {show(given)}, expected a mapping of labels to a value or a list of values")
    return tuple(sorted((_label_name(name), _label_values(name, values)) for name, values in given.items()))


def _label_name(name: Any) -> str:
    if not isinstance(name, str):
        raise refuse(f"found {show(name)} as a label, expected its name")
    return name


def _label_values(name: Any, given: Any) -> tuple[str, ...]:
    values = given if isinstance(given, list) else [given]
    if not values or not all(isinstance(value, str) for value in values):
        number = any(isinstance(value, (bool, int, float)) for value in values)
        hint = ": values of labels are texts, put it in quotes" if number else ""
        raise refuse(f"label {show(name)}: found {show(given)}, expected a text or a list of texts{hint}")
    return tuple(sorted(set(values)))


def write_where(where: Where) -> dict[str, Any]:
    """Write a filter as a config would: the inverse of `parse_where`."""
    return {name: values[0] if len(values) == 1 else list(values) for name, values in where}


_INDEX: Final = {"type": "integer", "minimum": 0}
_LABEL: Final = {"type": "string", "pattern": r"^\{.+\}$"}


def _layers_schema(*more: Any) -> Any:
    number = {"anyOf": [{"type": "integer"}, *more]} if more else {"type": "integer"}
    ends = {"from": number, "to": number}
    span = {"type": "object", "properties": ends, "required": ["from", "to"], "additionalProperties": False}
    return {"anyOf": [{"const": "all"}, {"type": "array", "items": number, "minItems": 1}, span, *more]}


def _position_schema(*more: Any) -> Any:
    number = {"anyOf": [_INDEX, *more]} if more else _INDEX
    parts = {"span": {"enum": list(get_args(SpanPart))}} | dict.fromkeys(_NUMBERED, number)
    mappings = [
        {"type": "object", "properties": {key: kind}, "required": [key], "additionalProperties": False}
        for key, kind in parts.items()
    ]
    mappings[0]["properties"] = {"span": parts["span"], "occurrence": {"type": "integer", "minimum": 1}}
    return {"anyOf": [{"enum": [*WORDS, "generated"]}, *mappings, *more]}


_WRITE_LAYERS: Final = PlainSerializer(write_layers)
_WRITE_POSITION: Final = PlainSerializer(write_position)

Layers = Annotated[
    Literal["all"] | tuple[int, ...] | LayerRange,
    PlainValidator(_no_labels(parse_layers)),
    _WRITE_LAYERS,
    WithJsonSchema(_layers_schema()),
]
LabelledLayers = Annotated[
    LayerChoice, PlainValidator(parse_layers), _WRITE_LAYERS, WithJsonSchema(_layers_schema(_LABEL))
]
PositionField = Annotated[
    Position, PlainValidator(_no_labels(parse_position)), _WRITE_POSITION, WithJsonSchema(_position_schema())
]
LabelledPositionField = Annotated[
    PositionChoice, PlainValidator(parse_position), _WRITE_POSITION, WithJsonSchema(_position_schema(_LABEL))
]
WhereField = Annotated[
    Where,
    PlainValidator(parse_where),
    PlainSerializer(write_where),
    WithJsonSchema(
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
            },
        }
    ),
]
