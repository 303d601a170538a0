"""Records as canonical JSON: the same text for the same values, for hashing and for files that are compared."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

SHOWN: Final = 60
"""Characters of a value that a difference shows."""


def plain(record: Any) -> Any:
    """Return `record` as dicts with text keys, lists, texts, numbers, booleans and None.

    Takes dataclasses, mappings, sequences and NumPy scalars and arrays; raises TypeError for anything else, and for
    keys that are not texts, so that nothing is hashed by accident of its `str`.
    """
    if record is None or isinstance(record, bool | int | float | str):
        return record
    if isinstance(record, np.generic | np.ndarray):
        return record.tolist()
    if isinstance(record, Sequence) and not isinstance(record, bytes):
        # before dataclasses: those that hold a sequence in arrays are told as the sequence
        return [plain(value) for value in record]
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: plain(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        if wrong := [key for key in record if not isinstance(key, str)]:
            raise TypeError(f"key {wrong[0]!r} is not a text")
        return {key: plain(value) for key, value in record.items()}
    raise TypeError(f"{type(record).__name__} has no canonical form: {record!r}")


def canonical_json(record: Any, *, indent: int | None = None) -> str:
    """Return JSON with sorted keys and exact floats; raises ValueError for NaN and infinities.

    Floats are written in the fewest digits that give back the same float64.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(
        plain(record), sort_keys=True, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators
    )


def sha256_of(record: Any) -> str:
    """SHA-256 of a record's canonical JSON in UTF-8."""
    return hashlib.sha256(canonical_json(record).encode()).hexdigest()


def explain_difference(old: Any, new: Any, key: str = "") -> list[str]:
    """Name every key path whose value changed, was added or is gone: `generate.max_tokens: was 8, is 16`."""
    old, new = plain(old), plain(new)
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for name in sorted(old.keys() | new.keys())
            for line in _explain_entry(old, new, name, f"{key}.{name}" if key else name)
        ]
    if isinstance(old, list) and isinstance(new, list):
        return _explain_lists(old, new, key)
    if type(old) is type(new) and old == new:
        return []
    return [f"{key or 'value'}: was {_shown(old)}, is {_shown(new)}"]


def _explain_lists(old: list[Any], new: list[Any], key: str) -> list[str]:
    pairs = enumerate(zip(old, new, strict=False))
    lines = [line for i, (a, b) in pairs for line in explain_difference(a, b, f"{key}[{i}]")]
    if len(old) == len(new):
        return lines
    if max(len(json.dumps(one, ensure_ascii=False)) for one in (old, new)) <= SHOWN:
        return [f"{key or 'value'}: was {_shown(old)}, is {_shown(new)}"]
    # after an entry that came or went all others differ: the first is enough
    return [f"{key or 'value'}: had {len(old)} entries, has {len(new)}", *lines[:1]]


def _explain_entry(old: dict[str, Any], new: dict[str, Any], name: str, key: str) -> list[str]:
    if name not in old:
        return [f"{key}: was absent, is {_shown(new[name])}"]
    if name not in new:
        return [f"{key}: was {_shown(old[name])}, is absent"]
    return explain_difference(old[name], new[name], key)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
