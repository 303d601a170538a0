"""A copy of a model with every tensor decoded to F32, for references that round activations beside other types."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from ember.gguf import GGUFFile, TensorInfo
from ember.gguf.decode import decode
from ember.gguf.types import ARRAY, STRING, VALUE_DTYPES, VALUE_NAMES

_ALIGNMENT: Final = 32
_F32: Final = 0
_LEFT_OUT: Final = ("split.", "general.alignment")
"""Keys that describe how the original lies on the disk."""


def write_f32_copy(file: GGUFFile, target: Path) -> Path:
    """Write one GGUF (version 3) with the metadata of `file` and its tensors, in order, as float32."""
    keys = [key for key in file.metadata if not key.startswith(_LEFT_OUT)]
    tensors = list(file.tensors.values())
    with target.open("wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)))
        for key in keys:
            value = file.metadata[key] if key != "general.file_type" else _file_type(file)
            out.write(_text(key.encode()) + _value(value, file.metadata_type(key)))
        out.write(b"".join(_lines(tensors)))
        for info in tensors:
            _pad(out)
            values = np.empty(info.shape, np.float32)
            decode(file.raw(info.name), info.type, values)
            out.write(values.data)
        _pad(out)
    return target


def _file_type(file: GGUFFile) -> Any:
    """Return ggml's number for "all F32"; a value that is no number stays as it is."""
    return file.metadata["general.file_type"] if file.metadata_type("general.file_type") == "STRING" else 0


def _lines(tensors: Iterable[TensorInfo]) -> Iterable[bytes]:
    """Yield the table of tensors; offsets count from the end of the padded header."""
    offset = 0
    for info in tensors:
        dimensions = struct.pack(f"<I{len(info.shape)}Q", len(info.shape), *reversed(info.shape))
        yield _text(info.name.encode()) + dimensions + struct.pack("<IQ", _F32, offset)
        size = 4 * int(np.prod(info.shape))
        offset += size + -size % _ALIGNMENT


def _pad(out: BinaryIO) -> None:
    out.write(bytes(-out.tell() % _ALIGNMENT))


def _text(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _value(value: Any, kind: str) -> bytes:
    """Encode a value, its type first."""
    inner = kind.removeprefix("ARRAY[").removesuffix("]") if kind.startswith("ARRAY[") else None
    if inner is None:
        number = VALUE_NAMES.index(kind)
        data = _text(value.encode()) if number == STRING else np.array(value, VALUE_DTYPES[number]).tobytes()
        return struct.pack("<I", number) + data
    return struct.pack("<I", ARRAY) + _array(value, inner)


def _array(value: Any, kind: str) -> bytes:
    if kind.startswith("ARRAY"):
        parts = [_value(one, kind)[4:] for one in value]
        return struct.pack("<IQ", ARRAY, len(value)) + b"".join(parts)
    number = VALUE_NAMES.index(kind)
    if number == STRING:
        data = b"".join(_text(one) for one in value)
    else:
        data = np.asarray(value, VALUE_DTYPES[number]).tobytes()
    return struct.pack("<IQ", number, len(value)) + data
