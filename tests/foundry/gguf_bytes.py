"""GGUF files byte by byte: whatever a hostile or broken one may hold, and the layout of the format in plain sight.

    data = Gguf([string("general.architecture", "llama")], [Tensor("w", [2, 3], F32, payload=b"..")]).to_bytes()

Nothing is checked: lengths, counts, offsets, types and alignment can each be given a wrong value.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

F32, F16, Q4_0, Q8_0, Q4_K = 0, 1, 2, 8, 12
UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
FORMATS = {
    UINT8: "B",
    INT8: "b",
    UINT16: "H",
    INT16: "h",
    UINT32: "I",
    INT32: "i",
    FLOAT32: "f",
    BOOL: "B",
    UINT64: "Q",
    INT64: "q",
    FLOAT64: "d",
}


def text(value: str | bytes, *, length: int | None = None) -> bytes:
    """A GGUF string: its length as u64, then its bytes; `length` lies about it."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def pair(key: str | bytes, kind: int, payload: bytes) -> bytes:
    """A key, the number of its value's type, and the value as it lies in the file."""
    return text(key) + struct.pack("<I", kind) + payload


def scalar(key: str | bytes, kind: int, value: float) -> bytes:
    """A number under a key."""
    return pair(key, kind, struct.pack(f"<{FORMATS[kind]}", value))


def string(key: str | bytes, value: str | bytes) -> bytes:
    """A string under a key."""
    return pair(key, STRING, text(value))


def array_header(kind: int, length: int) -> bytes:
    """What stands before the items of an array: their type and how many they are."""
    return struct.pack("<IQ", kind, length)


def numbers(key: str, kind: int, values: Sequence[float]) -> bytes:
    """An array of numbers under a key."""
    items = struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)
    return pair(key, ARRAY, array_header(kind, len(values)) + items)


def strings(key: str, values: Sequence[str | bytes]) -> bytes:
    """An array of strings under a key."""
    return pair(key, ARRAY, array_header(STRING, len(values)) + b"".join(text(value) for value in values))


def nested(key: str, depth: int) -> bytes:
    """Arrays in arrays, `depth` of them, the innermost one holding no numbers."""
    return pair(key, ARRAY, array_header(ARRAY, 1) * (depth - 1) + array_header(UINT8, 0))


@dataclass
class Tensor:
    """A line of the tensor table and its data. `dims` as in the file, the contiguous one first."""

    name: str | bytes
    dims: Sequence[int]
    kind: int = F32
    payload: bytes = b""
    offset: int | None = None
    """Where the data start, counted from the first tensor's; None: after those of the tensor before."""
    n_dims: int | None = None

    def line(self, offset: int) -> bytes:
        """Name, number of dimensions, dimensions, type, offset."""
        n_dims = len(self.dims) if self.n_dims is None else self.n_dims
        dims = struct.pack(f"<{len(self.dims)}Q", *self.dims)
        return text(self.name) + struct.pack("<I", n_dims) + dims + struct.pack("<IQ", self.kind, offset)


@dataclass
class Gguf:
    """A file: `pairs` from the functions above, tensors with their data."""

    pairs: Sequence[bytes] = ()
    tensors: Sequence[Tensor] = ()
    alignment: int = 32
    """How the data are really aligned; the key `general.alignment` is not written for you."""
    version: int = 3
    magic: bytes = b"GGUF"
    n_tensors: int | None = None
    n_pairs: int | None = None
    order: str = field(default="<")
    """Byte order of version and counts: `>` for a big-endian header."""

    def header(self) -> bytes:
        """Everything before the padding that leads to the data."""
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_pairs = len(self.pairs) if self.n_pairs is None else self.n_pairs
        lines, place = [], 0
        for tensor in self.tensors:
            lines.append(tensor.line(place if tensor.offset is None else tensor.offset))
            place += len(tensor.payload) + -len(tensor.payload) % self.alignment
        start = self.magic + struct.pack(f"{self.order}IQQ", self.version, n_tensors, n_pairs)
        return start + b"".join(self.pairs) + b"".join(lines)

    def to_bytes(self) -> bytes:
        """The whole file."""
        data = bytearray(self.header())
        for tensor in self.tensors:
            data += bytes(-len(data) % self.alignment)
            data += tensor.payload
        return bytes(data)
