"""Many texts held as one run of bytes and the places where each starts, in memory or in a mapped file."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Texts(Sequence[str]):
    """Texts one after another in UTF-8, each decoded when it is asked for."""

    joined: bytes | memoryview
    """Bytes in memory, or of a mapped file."""
    starts: "array[int] | NDArray[np.int64]"
    """[texts + 1] where each text starts."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Texts":
        """Join texts."""
        writer = TextWriter()
        for text in texts:
            writer.add(text)
        return writer.done()

    @classmethod
    def read(cls, arrays: Arrays, name: str) -> "Texts":
        """Take the texts called `name` out of a file."""
        return cls(arrays[name].data, arrays[f"{name}_starts"])

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays that `read` takes."""
        return {name: np.frombuffer(self.joined, np.uint8), f"{name}_starts": np.asarray(self.starts, np.int64)}

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
        at = place_of(at, len(self))
        return str(self.joined[self.starts[at] : self.starts[at + 1]], "utf-8")

    def __iter__(self) -> Iterator[str]:
        """Go through the texts in order."""
        start, joined = 0, self.joined
        for end in self.starts[1:]:
            yield str(joined[start:end], "utf-8")
            start = end


class TextWriter:
    """Gathers texts."""

    def __init__(self) -> None:
        self._joined, self._starts = bytearray(), array("q", [0])

    def add(self, text: str) -> None:
        """Add a text behind the others."""
        self._joined += text.encode()
        self._starts.append(len(self._joined))

    def done(self) -> Texts:
        """Return what was gathered."""
        return Texts(bytes(self._joined), self._starts)


@dataclass(frozen=True, slots=True)
class MaybeTexts(Sequence[str | None]):
    """Texts of which some are not there."""

    texts: Texts
    there: NDArray[np.bool_]

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


def place_of(at: int, count: int) -> int:
    """Count a place from the start; raises IndexError, which ends a loop over a sequence."""
    if not -count <= at < count:
        raise IndexError(f"{at} of {count}")
    return at % count
