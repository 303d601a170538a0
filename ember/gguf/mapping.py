"""Files mapped into memory, each once per process however often it is opened."""

import contextlib
import mmap
import os
import stat
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ember.errors import GGUFError


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a model, as it was when it was opened."""

    path: Path
    size: int
    device: int
    inode: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: Path, found: os.stat_result) -> "Part":
        """Make the record of a file from what the system says about it."""
        return cls(path, found.st_size, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)

    def unchanged(self) -> bool:
        """Whether the path still names the same file with the same size and modification time."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        now = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return now == (self.device, self.inode, self.size, self.mtime_ns)


class Mapping:
    """The bytes of a file, read-only. Unmapped when the last view of them is gone; needs no open file."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: memoryview) -> None:
        self.data = data


_Key = tuple[int, int, int, int, int]
_mapped: Final[weakref.WeakValueDictionary[_Key, Mapping]] = weakref.WeakValueDictionary()
_lock: Final = threading.Lock()


def map_file(path: Path) -> tuple[Part, Mapping]:
    """Map a file; raises GGUFError for what is no readable, non-empty regular file."""
    descriptor = _open(path)
    try:
        part = Part.of(path, os.fstat(descriptor))
        if part.size == 0:
            raise GGUFError(f"{path}: file: is empty; a GGUF model is expected, download or copy it again (offset 0)")
        key = (part.device, part.inode, part.size, part.mtime_ns, part.ctime_ns)
        with _lock:
            found = _mapped.get(key)
            if found is None:
                found = _mapped[key] = Mapping(_map(descriptor, part))
        return part, found
    finally:
        os.close(descriptor)


def _map(descriptor: int, part: Part) -> memoryview:
    try:
        return memoryview(mmap.mmap(descriptor, part.size, access=mmap.ACCESS_READ))
    except (OSError, ValueError, OverflowError) as error:
        raise GGUFError(f"{part.path}: file: cannot be mapped into memory: {error} (offset 0)") from error


def _open(path: Path) -> int:
    """Open a regular file for reading; anything else is refused before it can block."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise GGUFError(f"{path}: file: is a directory; name the .gguf file in it{_inside(path)}")
        if not stat.S_ISREG(mode):
            raise GGUFError(f"{path}: file: is not a regular file; a .gguf file is expected")
        return os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise GGUFError(f"{path}: file: does not exist; give the path of a .gguf file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise GGUFError(f"{path}: file: cannot be opened: {reason}; check the path and its permissions") from None


def _inside(folder: Path) -> str:
    """Name the models of a folder for a message."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(entry.name for entry in folder.glob("*.gguf"))
    return f": {', '.join(names[:3])}{', …' if len(names) > 3 else ''}" if names else ""
