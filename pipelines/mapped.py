"""Arrays and plain data in one file, mapped when it is read: what a process does not look at costs it no memory.

    magic, length of the head (uint64), head (JSON: plain data; name, type, shape and place of each array), the arrays

Everything is little-endian, and arrays start at multiples of 64 bytes. No pickle: reading such a file runs nothing.
"""

import json
import math
import mmap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipelines.texts import Arrays

MAGIC: Final = b"EMBARR01"
ALIGN: Final = 64


def write_arrays(path: Path, arrays: Arrays, told: Mapping[str, Any]) -> None:
    """Write arrays of numbers and plain data; equal ones give equal bytes."""
    stored = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    places, place = {}, 0
    for name, array in stored.items():
        places[name] = [array.dtype.str, array.shape, place]
        place += _aligned(array.nbytes)
    head = json.dumps({"told": told, "arrays": places}, sort_keys=True).encode()
    with path.open("wb") as file:
        file.write(MAGIC + len(head).to_bytes(8, "little") + head)
        for data in _padded(file.tell(), stored.values()):
            file.write(data)


def map_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Map a file's arrays, which cannot be written to, and read its plain data.

    Raises ValueError, KeyError or TypeError for what is no such file.
    """
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if data[:8] != MAGIC:
        raise ValueError(f"{path.name} does not begin with {MAGIC!r}")
    end = 16 + int.from_bytes(data[8:16], "little")
    head = json.loads(data[16:end])
    start = _aligned(end)
    arrays = {}
    for name, (dtype, shape, place) in head["arrays"].items():
        found: NDArray[Any] = np.frombuffer(data, np.dtype(dtype), math.prod(shape), start + place)
        arrays[name] = found.reshape(shape)
    return arrays, head["told"]


def _padded(written: int, arrays: Iterable[NDArray[Any]]) -> Iterator[Any]:
    yield bytes(_aligned(written) - written)
    for array in arrays:
        yield array.data if array.nbytes else b""
        yield bytes(_aligned(array.nbytes) - array.nbytes)


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
