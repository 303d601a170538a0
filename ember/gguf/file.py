"""A GGUF model opened for reading: metadata, tensor table, and read-only views of the mapped files."""

from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.errors import GGUFError, InputError, UnsupportedError
from ember.gguf import hashing, split
from ember.gguf.cursor import show
from ember.gguf.header import Header, read_header
from ember.gguf.mapping import Mapping, Part, map_file
from ember.gguf.metadata import Value
from ember.gguf.tensors import TensorInfo
from ember.gguf.types import VIEW_DTYPES, QuantType, supported_types


@dataclass(frozen=True, slots=True)
class _Opened:
    part: Part
    mapping: Mapping
    header: Header


class GGUFFile:
    """One model, of one file or several. Everything its headers say has been checked against the bytes."""

    def __init__(self, opened: list[_Opened], tensors: dict[str, TensorInfo]) -> None:
        """Use `open_gguf`."""
        first = opened[0].header
        self.parts: tuple[Part, ...] = tuple(one.part for one in opened)
        self.version: int = first.version
        self.alignment: int = first.alignment
        self.tensors: MappingABC[str, TensorInfo] = MappingProxyType(tensors)
        self._values: dict[str, Value] = first.metadata
        self.metadata: MappingABC[str, Any] = MappingProxyType({key: one.value for key, one in first.metadata.items()})
        self._mappings: tuple[Mapping, ...] | None = tuple(one.mapping for one in opened)
        self._sha256: str | None = None

    @property
    def path(self) -> Path:
        """The file, the first one of a split model."""
        return self.parts[0].path

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def decoded_bytes(self) -> int:
        """Bytes that all weights take once decoded; float32 tensors are read where they lie."""
        return sum(4 * info.size for info in self.tensors.values() if info.type.name != "F32")

    def metadata_type(self, key: str) -> str:
        """Return how a key's value is stored, e.g. `UINT32` or `ARRAY[STRING]`; KeyError if there is none."""
        return self._values[key].type_name

    def tensor(self, name: str) -> TensorInfo:
        """Return a tensor's line of the table; raises GGUFError if the file has none of that name."""
        found = self.tensors.get(name)
        if found is None:
            raise GGUFError(f"{self.path}: tensor {show(name)}: not among the {len(self.tensors)} tensors of the file")
        return found

    def raw(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a tensor, uint8 [nbytes], read-only, not copied."""
        info = self.tensor(name)
        if not info.type.known_size:
            raise self._unsupported([info])
        if self._mappings is None:
            raise GGUFError(f"{self.path}: file: was closed; open it again to read tensors")
        return np.frombuffer(self._mappings[info.part].data, np.uint8, info.nbytes, info.offset)

    def view(self, name: str) -> NDArray[Any]:
        """Return a tensor whose values need no decoding as [*shape] of its own dtype, read-only, not copied."""
        info = self.tensor(name)
        dtype = VIEW_DTYPES.get(info.type.name)
        if dtype is None:
            raise InputError(f"tensor {show(name)} is {info.type}, which NumPy cannot view; take raw() and decode it")
        values: NDArray[Any] = self.raw(name).view(dtype).reshape(info.shape)
        return values

    def check_supported(self) -> None:
        """Raise UnsupportedError naming every tensor whose type cannot be decoded."""
        refused = [info for info in self.tensors.values() if not info.type.supported]
        if refused:
            raise self._unsupported(refused)

    def _unsupported(self, refused: list[TensorInfo]) -> UnsupportedError:
        by_type: dict[QuantType, list[str]] = {}
        for info in refused:
            by_type.setdefault(info.type, []).append(show(info.name))
        found = "; ".join(
            f"{kind} (type id {kind.id}), {len(names)} tensors: {', '.join(names)}" for kind, names in by_type.items()
        )
        return UnsupportedError(
            f"{self.path}: {len(refused)} of {len(self.tensors)} tensors have types that Ember does not decode; "
            f"supported types: {supported_types()}; take a file of these or convert this one; not decoded: {found}"
        )

    def sha256(self) -> str:
        """Return the sha256 of the file; for a split model, over the parts' hex digests, a newline after each."""
        if self._sha256 is None:
            self._sha256 = hashing.joint_sha256(self.parts)
        return self._sha256

    def unchanged(self) -> bool:
        """Whether all parts are still the files that were opened."""
        return all(part.unchanged() for part in self.parts)

    def check_unchanged(self) -> None:
        """Raise GGUFError if a part was replaced, truncated or rewritten since it was opened."""
        for part in self.parts:
            if not part.unchanged():
                raise hashing.changed(part)

    def close(self) -> None:
        """Let go of the mapped files; they are unmapped when no view of a tensor or vocabulary is left."""
        self._mappings = None

    def __enter__(self) -> "GGUFFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"GGUFFile({str(self.path)!r}, {len(self.tensors)} tensors, {len(self.parts)} parts)"


def open_gguf(path: str | PathLike[str]) -> GGUFFile:
    """Open a GGUF model read-only and check its headers; a split one by any of its parts.

    Raises GGUFError (`<file>: <field>: <what> (offset N)`) for a file that contradicts itself or ends too early.
    Types that Ember cannot decode are listed all the same; `GGUFFile.check_supported` refuses them.
    """
    named = Path(path)
    only = _open_part(named, 0)
    count = split.split_count(named, only.header)
    if count == 1:
        return GGUFFile([only], only.header.tensors)
    paths = split.part_paths(named, only.header, count)
    opened = [_open_part(one, index) for index, one in enumerate(paths)]
    for index, one in enumerate(opened):
        split.check_part(one.part.path, one.header, index, count)
    return GGUFFile(opened, split.join(paths, [one.header for one in opened]))


def _open_part(path: Path, index: int) -> _Opened:
    part, mapping = map_file(path)
    return _Opened(part, mapping, read_header(mapping.data, str(path), index))
