"""Arrays and plain data in one file, mapped when it is read: what a process does not look at costs it no memory.

    magic, length of the head (uint64), head (JSON: plain data; name, type, shape and place of each array), the arrays

Everything is little-endian, and arrays start at multiples of 64 bytes. No pickle: reading such a file runs nothing.
"""

import json
import math
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

MAGIC: Final = b"EMBARR01"
ALIGN: Final = 64


@dataclass(frozen=True, slots=True)
class Texts(Sequence[str]):
    """Texts one after another in UTF-8, each decoded when it is asked for."""

    joined: NDArray[np.uint8]
    starts: NDArray[np.int64]
    """[texts + 1] where each text starts."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Texts":
        """Join texts."""
        joined, starts = bytearray(), np.zeros(len(texts) + 1, np.int64)
        for at, text in enumerate(texts):
            joined += text.encode()
            starts[at + 1] = len(joined)
        return cls(np.frombuffer(joined, np.uint8), starts)

    @classmethod
    def read(cls, arrays: Arrays, name: str) -> "Texts":
        """Take the texts called `name` out of a file."""
        return cls(arrays[name], arrays[f"{name}_starts"])

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays that `read` takes."""
        return {name: self.joined, f"{name}_starts": self.starts}

    def __len__(self) -> int:
        """Count the texts."""
        return len(self.starts) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        """Return a text, or a list of them."""
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(f"text {at} of {len(self)}")
        return self.joined[self.starts[at] : self.starts[at + 1]].tobytes().decode()


@dataclass(frozen=True, slots=True)
class MaybeTexts(Sequence[str | None]):
    """Texts of which some are not there."""

    texts: Texts
    there: NDArray[np.bool_]

    @classmethod
    def of(cls, texts: Sequence[str | None]) -> "MaybeTexts":
        """Join texts."""
        return cls(Texts.of([text or "" for text in texts]), np.array([text is not None for text in texts], np.bool_))

    @classmethod
    def read(cls, arrays: Arrays, name: str) -> "MaybeTexts":
        """Take the texts called `name` out of a file."""
        return cls(Texts.read(arrays, name), arrays[f"{name}_there"])

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays that `read` takes."""
        return self.texts.arrays(name) | {f"{name}_there": self.there}

    def __len__(self) -> int:
        """Count the texts, there or not."""
        return len(self.there)

    @overload
    def __getitem__(self, at: int) -> str | None: ...
    @overload
    def __getitem__(self, at: slice) -> list[str | None]: ...
    def __getitem__(self, at: int | slice) -> str | list[str | None] | None:
        """Return a text or None, or a list of them."""
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        text = self.texts[at]
        return text if self.there[at] else None


@dataclass(frozen=True, slots=True)
class TextLists(Sequence[tuple[str, ...]]):
    """Lists of texts."""

    texts: Texts
    firsts: NDArray[np.int64]
    """[lists + 1] where each list starts."""

    @classmethod
    def of(cls, lists: Sequence[Sequence[str]]) -> "TextLists":
        """Join lists."""
        firsts = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(one) for one in lists], out=firsts[1:])
        return cls(Texts.of([text for one in lists for text in one]), firsts)

    @classmethod
    def read(cls, arrays: Arrays, name: str) -> "TextLists":
        """Take the lists called `name` out of a file."""
        return cls(Texts.read(arrays, name), arrays[f"{name}_firsts"])

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays that `read` takes."""
        return self.texts.arrays(name) | {f"{name}_firsts": self.firsts}

    def __len__(self) -> int:
        """Count the lists."""
        return len(self.firsts) - 1

    @overload
    def __getitem__(self, at: int) -> tuple[str, ...]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[str, ...]]: ...
    def __getitem__(self, at: int | slice) -> tuple[str, ...] | list[tuple[str, ...]]:
        """Return a list, or a list of them."""
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(f"list {at} of {len(self)}")
        return tuple(self.texts[int(self.firsts[at]) : int(self.firsts[at + 1])])


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
