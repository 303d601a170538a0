"""One pass over the header of one file."""

from dataclasses import dataclass
from typing import Final

from ember.gguf.cursor import Cursor
from ember.gguf.metadata import MAX_KEYS, SMALLEST_PAIR, Value, read_metadata
from ember.gguf.tensors import MAX_TENSORS, SMALLEST_TENSOR, TensorInfo, read_alignment, read_tensors

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
_RELATIVES: Final = {b"lmgg": "ggml", b"fmgg": "ggmf", b"tjgg": "ggjt", b"algg": "ggla"}
"""First bytes of GGUF's predecessors: their magic numbers, little-endian."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of one file says, checked."""

    version: int
    alignment: int
    metadata: dict[str, Value]
    tensors: dict[str, TensorInfo]


def read_header(data: memoryview, path: str, part: int) -> Header:
    """Read and check the header of the file whose bytes are `data`; raises GGUFError."""
    cursor = Cursor(data, path)
    version = _version(cursor)
    cursor.field = "tensor count"
    n_tensors = cursor.count(SMALLEST_TENSOR, MAX_TENSORS, "tensors")
    cursor.field = "key count"
    n_keys = cursor.count(SMALLEST_PAIR, MAX_KEYS, "keys")
    metadata = read_metadata(cursor, n_keys)
    alignment = read_alignment(cursor, metadata)
    return Header(version, alignment, metadata, read_tensors(cursor, n_tensors, alignment, part))


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of a checked header stand, in bytes from the start of the file."""

    counts: int
    keys: int
    tensors: int
    end: int
    n_tensors: int
    n_keys: int


def places(cursor: Cursor) -> Places:
    """Find the parts of a header that `read_header` has checked."""
    _version(cursor)
    counts = cursor.pos
    n_tensors, n_keys = cursor.u64(), cursor.u64()
    keys = cursor.pos
    alignment = read_alignment(cursor, read_metadata(cursor, n_keys))
    tensors = cursor.pos
    read_tensors(cursor, n_tensors, alignment, 0)
    return Places(counts, keys, tensors, cursor.pos, n_tensors, n_keys)


def _version(cursor: Cursor) -> int:
    cursor.field = "magic"
    magic = bytes(cursor.data[:4])
    if magic != MAGIC:
        if len(magic) < len(MAGIC) and MAGIC.startswith(magic):
            cursor.take(4)
        raise cursor.error(_not_gguf(magic))
    cursor.take(4)
    cursor.field = "version"
    version = cursor.u32()
    if version in VERSIONS:
        return version
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped < version and swapped <= max(VERSIONS):
        raise cursor.error(
            f"a big-endian GGUF (version {swapped}); only little-endian is read: convert it with gguf-convert-endian", 4
        )
    raise cursor.error(f"GGUF version {version}; versions 2 and 3 are read: convert the model again", 4)


def _not_gguf(magic: bytes) -> str:
    relative = _RELATIVES.get(magic)
    if relative:
        return f"a model in the old {relative} format, not a GGUF; convert it with llama.cpp"
    return f"{magic!r} instead of b'GGUF': this is not a GGUF model"
