"""Models in several files: `name-00001-of-00003.gguf`. Names count from 1, `split.no` counts from 0."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ember.errors import GGUFError
from ember.gguf.header import Header
from ember.gguf.tensors import TensorInfo

_NAME: Final = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf\Z", re.DOTALL)
MAX_PARTS: Final = 99_999


@dataclass(frozen=True, slots=True)
class SplitName:
    """What a file's name says: part `number` (from 1) of `count`."""

    stem: str
    number: int
    count: int

    def sibling(self, number: int) -> str:
        """Return the file name of another part."""
        return f"{self.stem}-{number:05d}-of-{self.count:05d}.gguf"


def split_name(path: Path) -> SplitName | None:
    """Read a part's number out of a file name; None if it has none."""
    match = _NAME.match(path.name)
    return SplitName(match["stem"], int(match["number"]), int(match["count"])) if match else None


def split_count(path: Path, header: Header) -> int:
    """Return into how many files the model was split, as the header says; 1 for a whole model."""
    count = _integer(path, header, "split.count", 1)
    if not 1 <= count <= MAX_PARTS:
        raise _error(path, "split.count", f"is {count}; 1 to {MAX_PARTS} are expected")
    return count


def part_paths(path: Path, header: Header, count: int) -> list[Path]:
    """Return the files of the model, in order, one of them `path`; raises GGUFError naming what is missing."""
    number = _integer(path, header, "split.no", 0) + 1
    name = split_name(path)
    if name is None or (name.number, name.count) != (number, count):
        raise _error(
            path,
            "split.count",
            f"this is part {number} of {count}, so its name must end in -{number:05d}-of-{count:05d}.gguf, with the "
            "other parts beside it; rename it, or merge the parts with llama-gguf-split --merge",
        )
    paths = [path.with_name(name.sibling(i)) for i in range(1, count + 1)]
    missing = [other.name for other in paths if not other.exists()]
    if missing:
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise _error(
            path, "split.count", f"part {number} of {count}; missing beside it: {listed}; put all parts in one folder"
        )
    return paths


def check_part(path: Path, header: Header, index: int, count: int) -> None:
    """Check that the file at place `index` (from 0) says so itself."""
    said = _integer(path, header, "split.no", 0), _integer(path, header, "split.count", 1)
    if said != (index, count):
        raise _error(path, "split.no", f"says part {said[0] + 1} of {said[1]}; part {index + 1} of {count} is expected")


def join(paths: Sequence[Path], headers: Sequence[Header]) -> dict[str, TensorInfo]:
    """Return the tensors of all parts as one table."""
    joined: dict[str, TensorInfo] = {}
    for path, header in zip(paths, headers, strict=True):
        for name, info in header.tensors.items():
            if name in joined:
                first = paths[joined[name].part].name
                raise _error(path, f"tensor {name!r}", f"stands in {first} too; each tensor belongs to one part")
            joined[name] = info
    announced = _integer(paths[0], headers[0], "split.tensors.count", len(joined))
    if announced != len(joined):
        raise _error(
            paths[0],
            "split.tensors.count",
            f"announces {announced} tensors, the {len(paths)} parts hold {len(joined)}; they do not belong together",
        )
    return joined


def _integer(path: Path, header: Header, key: str, default: int) -> int:
    found = header.metadata.get(key)
    if found is None:
        return default
    value: Any = found.value
    if isinstance(value, bool) or not isinstance(value, int):
        raise _error(path, key, f"stored as {found.type_name}; an integer is expected")
    return value


def _error(path: Path, field: str, what: str) -> GGUFError:
    return GGUFError(f"{path}: {field}: {what}")
