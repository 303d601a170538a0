"""The tensor table of a header, checked against itself and against the bytes of the file."""

from dataclasses import dataclass
from math import prod
from typing import Any, Final

from ember.gguf.cursor import TRUNCATED, Cursor, show
from ember.gguf.metadata import Value
from ember.gguf.types import UINT32, VALUE_NAMES, QuantType, quant_type

MAX_TENSORS: Final = 1 << 18
MAX_DIMS: Final = 4
DEFAULT_ALIGNMENT: Final = 32
ALIGNMENTS: Final = (8, 1 << 20)
SMALLEST_TENSOR: Final = 8 + 1 + 4 + 8 + 4 + 8
"""Bytes that a line of the table takes at least."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies and how its values are stored."""

    name: str
    type: QuantType
    shape: tuple[int, ...]
    """Row-major, contiguous dimension last: the reverse of the order in the file. A linear's weight is [out, in]."""
    part: int
    """Which file of a split model holds it, from 0."""
    offset: int
    """First byte, from the start of that file."""
    nbytes: int
    """Bytes that it takes; 0 where the type's size is not known (`type.known_size`)."""

    @property
    def size(self) -> int:
        """Number of values."""
        return prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, i.e. of `shape[-1]` values."""
        return self.shape[-1] // self.type.block_size * self.type.type_size if self.type.known_size else 0


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the table as read: `offset` counts from the start of the data."""

    name: str
    kind: QuantType
    shape: tuple[int, ...]
    offset: int
    at: int


def read_alignment(cursor: Cursor, metadata: dict[str, Value]) -> int:
    """Return the alignment of tensor data that the metadata ask for."""
    found: Value | None = metadata.get("general.alignment")
    if found is None:
        return DEFAULT_ALIGNMENT
    cursor.field = "key 'general.alignment'"
    if found.type_name != VALUE_NAMES[UINT32]:
        raise cursor.error(f"stored as {found.type_name}; UINT32 is expected")
    value: Any = found.value
    low, high = ALIGNMENTS
    if not (low <= value <= high and value & (value - 1) == 0):
        raise cursor.error(f"is {value}; a power of two from {low} to {high} is expected")
    return int(value)


def read_tensors(cursor: Cursor, count: int, alignment: int, part: int) -> dict[str, TensorInfo]:
    """Read the `count` lines of the table that starts here and check that the data they promise are there."""
    entries: dict[str, _Entry] = {}
    for index in range(count):
        cursor.field = f"tensor {index}"
        entry = _entry(cursor)
        if entry.name in entries:
            raise cursor.error("the tensor stands twice; each must have its own name", entry.at)
        entries[entry.name] = entry
    start = cursor.pos + -cursor.pos % alignment
    tensors = {name: _place(cursor, entry, start, alignment, part) for name, entry in entries.items()}
    _check_sequence(cursor, tensors, alignment)
    return tensors


def _entry(cursor: Cursor) -> _Entry:
    at = cursor.pos
    name = cursor.name()
    cursor.field = f"tensor {show(name)}"
    n_dims = cursor.u32()
    if not 1 <= n_dims <= MAX_DIMS:
        raise cursor.error(f"has {n_dims} dimensions; 1 to {MAX_DIMS} are expected", cursor.pos - 4)
    dims = [cursor.u64() for _ in range(n_dims)]
    if 0 in dims:
        raise cursor.error(f"has dimensions {dims}; each must be at least 1", at)
    return _Entry(name, quant_type(cursor.u32()), tuple(reversed(dims)), cursor.u64(), at)


def _place(cursor: Cursor, entry: _Entry, start: int, alignment: int, part: int) -> TensorInfo:
    """Give a line its bytes in the file; `start` is where the data begin."""
    cursor.field = f"tensor {show(entry.name)}"
    nbytes = _nbytes(cursor, entry)
    if entry.offset % alignment:
        raise cursor.error(f"data offset {entry.offset} is not a multiple of the alignment {alignment}", entry.at)
    available = cursor.end - start
    if entry.offset > available or nbytes > available - entry.offset:
        needed = start + entry.offset + nbytes
        shape = f"its shape {list(entry.shape)} is larger than the file, or " if nbytes > cursor.end else ""
        raise cursor.error(
            f"needs bytes up to {needed}, the file has {cursor.end}: {shape}{TRUNCATED}", start + entry.offset
        )
    return TensorInfo(entry.name, entry.kind, entry.shape, part, start + entry.offset, nbytes)


def _nbytes(cursor: Cursor, entry: _Entry) -> int:
    kind, columns = entry.kind, entry.shape[-1]
    if not kind.known_size:
        return 0
    if columns % kind.block_size:
        raise cursor.error(
            f"rows of {columns} columns cannot be {kind}, whose blocks hold {kind.block_size} values", entry.at
        )
    return prod(entry.shape) // kind.block_size * kind.type_size


def _check_sequence(cursor: Cursor, tensors: dict[str, TensorInfo], alignment: int) -> None:
    """Refuse data that overlap, and gaps wider than the alignment: a type or shape that is not the file's own."""
    end, owner = 0, ""
    for info in sorted(tensors.values(), key=lambda info: info.offset):
        cursor.field = f"tensor {show(info.name)}"
        if info.offset < end:
            raise cursor.error(f"its data overlap those of {show(owner)}, which end at {end}", info.offset)
        if owner and tensors[owner].type.known_size and info.offset >= end + alignment:
            raise cursor.error(
                f"its data begin {info.offset - end} bytes after those of {show(owner)} end, the alignment is "
                f"{alignment}: type or shape of {show(owner)} are not what was written",
                info.offset,
            )
        end, owner = info.offset + max(info.nbytes, 1), info.name
