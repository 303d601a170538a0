"""What a GGUF file holds, as plain data for `ember inspect`: bounded, with long values shortened."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import numpy as np

from ember.gguf.file import GGUFFile
from ember.gguf.metadata import StringArray
from ember.gguf.tensors import TensorInfo

_LAYER: Final = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a value is shown."""

    characters: int
    """Of a string."""
    items: int
    """Of an array."""


SHORT: Final = Limits(characters=160, items=6)
LONG: Final = Limits(characters=100_000, items=256)


def visible(text: str) -> str:
    """Return text that cannot move the cursor, colour a terminal or turn the direction of a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def describe(file: GGUFFile, limits: Limits = SHORT) -> dict[str, Any]:
    """Return everything about a file but the verdict, ready for JSON."""
    return {
        "path": printable(str(file.path)),
        "parts": [{"path": printable(str(part.path)), "bytes": part.size} for part in file.parts],
        "bytes": file.size,
        "version": file.version,
        "alignment": file.alignment,
        "metadata": {key: _value(file, key, limits) for key in file.metadata},
        "types": type_summary(file.tensors.values()),
        "values": sum(info.size for info in file.tensors.values()),
        "tensors": [tensor_record(info) for info in file.tensors.values()],
    }


def tensor_record(info: TensorInfo) -> dict[str, Any]:
    """Return one tensor as plain data; `bytes` is None where the type's size is not known."""
    return {
        "name": info.name,
        "type": info.type.name,
        "type_id": info.type.id,
        "shape": list(info.shape),
        "part": info.part,
        "offset": info.offset,
        "bytes": info.nbytes if info.type.known_size else None,
    }


def type_summary(tensors: Iterable[TensorInfo]) -> list[dict[str, Any]]:
    """Count tensors, values and bytes per type, the largest first."""
    found = list(tensors)
    counts = Counter(info.type for info in found)
    rows = [
        {
            "type": kind.name,
            "type_id": kind.id,
            "supported": kind.supported,
            "tensors": count,
            "values": sum(info.size for info in found if info.type == kind),
            "bytes": sum(info.nbytes for info in found if info.type == kind) if kind.known_size else None,
        }
        for kind, count in counts.items()
    ]
    return sorted(rows, key=lambda row: -(row["bytes"] or 0))


def grouped(records: Sequence[dict[str, Any]]) -> list[tuple[str, int, dict[str, Any]]]:
    """Gather tensors that differ only in a layer's number: (name with `*`, how many, one of them)."""
    groups: dict[tuple[str, str, tuple[int, ...]], list[dict[str, Any]]] = {}
    for record in records:
        key = (_LAYER.sub("*", record["name"]), record["type"], tuple(record["shape"]))
        groups.setdefault(key, []).append(record)
    return [(name if len(same) > 1 else same[0]["name"], len(same), same[0]) for (name, _, _), same in groups.items()]


def printable(text: str) -> str:
    """Return text that can be written as UTF-8 even if it names a path that is not: such bytes are escaped."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _value(file: GGUFFile, key: str, limits: Limits) -> dict[str, Any]:
    value = file.metadata[key]
    record: dict[str, Any] = {"type": file.metadata_type(key)}
    if isinstance(value, (StringArray, list, np.ndarray)):
        return record | {"length": len(value), "first": [_plain(one, limits) for one in value[: limits.items]]}
    if isinstance(value, str) and len(value) > limits.characters:
        return record | {"value": value[: limits.characters], "characters": len(value)}
    return record | {"value": _plain(value, limits)}


def _plain(value: Any, limits: Limits) -> Any:
    """Return a value that JSON can hold: NaN and infinities as text, inner arrays as their length."""
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
        return text if len(text) <= limits.characters else f"{text[: limits.characters]}…"
    if isinstance(value, (StringArray, list, np.ndarray)):
        return f"{len(value)} items"
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and not isfinite(value) else value
