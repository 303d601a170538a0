"""The key-value part of a header. Arrays of strings (vocabularies) are walked: only where each string ends is kept."""

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from ember.gguf.cursor import TRUNCATED, Cursor, show
from ember.gguf.types import ARRAY, BOOL, STRING, VALUE_DTYPES, VALUE_NAMES

MAX_KEYS: Final = 1 << 16
MAX_DEPTH: Final = 4
"""How deep arrays may nest; real files do not nest at all."""
MAX_STRINGS: Final = 1 << 24
"""Most strings in the arrays of one file, walked in a second; the largest vocabularies with merges have 2**20."""
MAX_NESTED: Final = 1 << 16
"""Most arrays inside arrays in one file."""
MAX_VALUE: Final = 256 * 1024 * 1024
"""Largest string or array of numbers, in bytes; an embedded tokenizer.json takes some 30 MB."""
SMALLEST_PAIR: Final = 8 + 1 + 4 + 1
"""Bytes that a key and its value take at least."""
_LENGTH: Final = struct.Struct("<Q")


class StringArray(Sequence[bytes]):
    """An array of strings as it lies in the file: `bytes`, cut out when asked for. UTF-8 is usual, not certain."""

    __slots__ = ("_data", "_ends")

    def __init__(self, data: memoryview, ends: "array[int]") -> None:
        """Take the file's bytes and where each string ends, `ends[0]` being where the array starts."""
        self._data = data
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        where = range(len(self))[index]
        return bytes(self._data[self._ends[where] + 8 : self._ends[where + 1]])

    def __iter__(self) -> Iterator[bytes]:
        base = self._ends[0]
        text = bytes(self._data[base : self._ends[-1]])
        start = 8
        for end in self._ends[1:]:
            yield text[start : end - base]
            start = end - base + 8

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StringArray({len(self)} strings)"


@dataclass(frozen=True, slots=True)
class Value:
    """A metadata value and the type that it is stored as, e.g. `UINT32` or `ARRAY[STRING]`."""

    value: Any
    type_name: str


def read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    """Read `count` pairs of key and value."""
    found: dict[str, Value] = {}
    for index in range(count):
        at = cursor.pos
        cursor.field = f"key {index}"
        key = cursor.name()
        cursor.field = f"key {show(key)}"
        if key in found:
            raise cursor.error("the key stands twice; a header must say each thing once", at)
        found[key] = _value(cursor, _type(cursor))
    return found


def _type(cursor: Cursor) -> int:
    at = cursor.pos
    number = cursor.u32()
    if number >= len(VALUE_NAMES):
        raise cursor.error(f"value type {number}; known are 0 to {len(VALUE_NAMES) - 1}", at)
    return number


def _value(cursor: Cursor, kind: int) -> Value:
    if kind == STRING:
        return Value(cursor.string(MAX_VALUE).decode(errors="backslashreplace"), "STRING")
    if kind == ARRAY:
        return _array(cursor, depth=1)
    return Value(_numbers(cursor, kind, 1)[0].item(), VALUE_NAMES[kind])


def _array(cursor: Cursor, depth: int) -> Value:
    if depth > MAX_DEPTH:
        raise cursor.error(f"arrays nest deeper than {MAX_DEPTH} levels")
    kind = _type(cursor)
    if kind == STRING:
        length = cursor.count(8, MAX_STRINGS - cursor.strings, "strings in arrays")
        cursor.strings += length
        return Value(_strings(cursor, length), "ARRAY[STRING]")
    if kind == ARRAY:
        length = cursor.count(12, MAX_NESTED - cursor.arrays, "arrays inside arrays")
        cursor.arrays += length
        inner = [_array(cursor, depth + 1) for _ in range(length)]
        return Value([one.value for one in inner], f"ARRAY[{inner[0].type_name if inner else 'ARRAY'}]")
    size = VALUE_DTYPES[kind].itemsize
    length = cursor.count(size, MAX_VALUE // size, "values")
    return Value(_numbers(cursor, kind, length), f"ARRAY[{VALUE_NAMES[kind]}]")


def _numbers(cursor: Cursor, kind: int, length: int) -> NDArray[Any]:
    """Copy numbers out of the file; metadata may lie at any byte, and NumPy is at its best with aligned ones."""
    dtype = VALUE_DTYPES[kind]
    start = cursor.take(length * dtype.itemsize)
    raw = np.frombuffer(cursor.data, np.uint8, length * dtype.itemsize, start)
    if kind == BOOL and raw.size and raw.max() > 1:
        raise cursor.error(f"a BOOL of {raw.max()}; 0 or 1 is expected", start)
    values: NDArray[Any] = np.frombuffer(raw.tobytes(), dtype)  # read-only, as bytes are
    return values


def _strings(cursor: Cursor, length: int) -> StringArray:
    """Walk over strings. The fast walk checks nothing; where it leaves the file, a careful one says why."""
    start = cursor.pos
    try:
        ends = array("Q", _walk(cursor.data, start, length))
    except (struct.error, OverflowError):
        ends = array("Q")
    if not ends or ends[-1] > cursor.end:
        raise _bad_string(cursor, length)
    cursor.pos = ends[-1]
    return StringArray(cursor.data, ends)


def _walk(data: memoryview, position: int, length: int) -> Iterator[int]:
    unpack = _LENGTH.unpack_from
    yield position
    for _ in repeat(None, length):
        position += 8 + unpack(data, position)[0]
        yield position


def _bad_string(cursor: Cursor, length: int) -> Exception:
    field = cursor.field
    for index in range(length):
        cursor.field = f"{field}, string {index} of {length}"
        at = cursor.pos
        size = cursor.u64()
        if size > cursor.left:
            return cursor.error(f"a string of {size} bytes, {cursor.left} are left: {TRUNCATED}", at)
        cursor.take(size)
    return cursor.error("the strings do not end inside the file")
