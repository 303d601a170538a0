"""Reading a header byte by byte, believing nothing: every length is compared with the bytes that are really there."""

import struct
from typing import Final

from ember.errors import GGUFError

MAX_NAME: Final = 64 * 1024
"""Longest key or tensor name, in bytes."""
_SHOWN: Final = 120
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
TRUNCATED: Final = "the file looks truncated; download or copy it again"


def show(name: str) -> str:
    """Quote a name out of a file for a message: control characters escaped, long ones shortened."""
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}…"


class Cursor:
    """A position in the header of one file, and the name of the field that is being read."""

    __slots__ = ("arrays", "data", "end", "field", "path", "pos", "strings")

    def __init__(self, data: memoryview, path: str) -> None:
        self.data = data
        self.end = len(data)
        self.path = path
        self.pos = 0
        self.arrays = 0
        """Arrays inside arrays met so far."""
        self.strings = 0
        """Strings inside arrays met so far."""
        self.field = "header"

    def error(self, what: str, at: int | None = None) -> GGUFError:
        """Return the error that says what is wrong with the current field, `at` a byte offset of the file."""
        return GGUFError(f"{self.path}: {self.field}: {what} (offset {self.pos if at is None else at})")

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.end - self.pos

    def take(self, size: int) -> int:
        """Step over `size` bytes and return where they start."""
        if size > self.end - self.pos:
            raise self.error(f"needs {size} bytes, {self.left} are left: {TRUNCATED}")
        start = self.pos
        self.pos = start + size
        return start

    def u32(self) -> int:
        """Read an unsigned 32-bit integer."""
        return int(_U32.unpack_from(self.data, self.take(4))[0])

    def u64(self) -> int:
        """Read an unsigned 64-bit integer."""
        return int(_U64.unpack_from(self.data, self.take(8))[0])

    def string(self, limit: int) -> bytes:
        """Read a string of at most `limit` bytes, its length before it."""
        at = self.pos
        size = self.u64()
        if size > self.left:
            raise self.error(f"a string of {size} bytes, {self.left} are left: {TRUNCATED}", at)
        if size > limit:
            raise self.error(f"a string of {size} bytes; at most {limit} are expected here", at)
        start = self.take(size)
        return bytes(self.data[start : start + size])

    def name(self) -> str:
        """Read a key or a tensor's name: UTF-8, not empty."""
        at = self.pos
        raw = self.string(MAX_NAME)
        if not raw:
            raise self.error("the name is empty; every key and tensor must have one", at)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.error(f"the name {raw[:_SHOWN]!r} is not UTF-8", at) from None

    def count(self, smallest: int, limit: int, of: str) -> int:
        """Read how many things follow, each taking at least `smallest` bytes."""
        at = self.pos
        found = self.u64()
        if found * smallest > self.left:
            raise self.error(f"{found} {of} cannot fit into the {self.left} bytes left: {TRUNCATED}", at)
        if found > limit:
            raise self.error(f"{found} {of}; at most {limit} are read", at)
        return found
