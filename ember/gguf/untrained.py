"""A copy of a model whose weights say nothing any more: the baseline of what a network of this shape gives untrained.

Every matrix keeps its values and loses their places: blocks (of the stored type; 32 values of float types) are put into
an order drawn from a seed. Vectors (norms, biases) stay, and so do names, types and shapes: the copy is as large and as
valid as the original. Two keys say what it is.
"""

import os
import struct
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError, UnsupportedError
from ember.gguf.cursor import Cursor
from ember.gguf.file import GGUFFile
from ember.gguf.header import places
from ember.gguf.mapping import map_file
from ember.gguf.tensors import TensorInfo
from ember.gguf.types import STRING, VALUE_NAMES

UINT64: Final = VALUE_NAMES.index("UINT64")
SEED_KEY: Final = "ember.untrained.seed"
SOURCE_KEY: Final = "ember.untrained.source_sha256"
FLOAT_GROUP: Final = 32
"""Neighbouring values of a type without blocks that stay together."""


def write_untrained(file: GGUFFile, out: Path, seed: int) -> None:
    """Write the copy to `out`, whole or not at all. Raises UnsupportedError for a split model, else InputError."""
    if len(file.parts) > 1:
        raise UnsupportedError(f"{file.path}: is split into {len(file.parts)} files; merge them first (gguf-split)")
    if SEED_KEY in file.metadata:
        raise InputError(f"{file.path}: is an untrained copy already ({SEED_KEY} {file.metadata[SEED_KEY]})")
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with unfinished.open("xb") as stream:
            _write(file, stream, seed)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(out)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write(file: GGUFFile, stream: IO[bytes], seed: int) -> None:
    _, mapping = map_file(file.path)
    found = places(Cursor(mapping.data, str(file.path)))
    added = _key(SEED_KEY, UINT64, struct.pack("<Q", seed)) + _key(SOURCE_KEY, STRING, _text(file.sha256()))
    stream.write(mapping.data[: found.counts])
    stream.write(struct.pack("<QQ", found.n_tensors, found.n_keys + 2))
    stream.write(mapping.data[found.keys : found.tensors])
    stream.write(added)
    stream.write(mapping.data[found.tensors : found.end])
    stream.write(b"\0" * (-stream.tell() % file.alignment))
    start, old_start = stream.tell(), found.end + -found.end % file.alignment
    for info in file.tensors.values():
        stream.write(b"\0" * (start + info.offset - old_start - stream.tell()))
        stream.write(_shuffled(file, info, seed).data)
    stream.write(b"\0" * (-stream.tell() % file.alignment))


def _shuffled(file: GGUFFile, info: TensorInfo, seed: int) -> NDArray[np.uint8]:
    raw = file.raw(info.name)
    group = info.type.type_size * (FLOAT_GROUP if info.type.block_size == 1 else 1)
    if len(info.shape) < 2 or len(raw) % group:
        return raw
    blocks = raw.reshape(-1, group)
    entropy = [seed, *info.name.encode()]  # each tensor has an order of its own, whatever the others are
    return np.ascontiguousarray(blocks[np.random.default_rng(entropy).permutation(len(blocks))])


def _key(name: str, kind: int, value: bytes) -> bytes:
    return _text(name) + struct.pack("<I", kind) + value


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()
