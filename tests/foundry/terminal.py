"""A program at a terminal of its own: keys go in, what the screen would get comes out."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from types import TracebackType

CTRL_C, CTRL_D, UP, ENTER = b"\x03", b"\x04", b"\x1b[A", b"\r"
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
_SEQUENCES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`with Terminal("generate", model, "--interactive") as screen`: runs `python -m ember …`."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None, columns: int = 400) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.seen = b""
        # a session of its own, whose terminal this is: else Ctrl-C would be a character like any
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, sys.executable, "-m", "ember", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env=os.environ | {"TERM": "xterm", "LC_ALL": "C.UTF-8"} | dict(environment or {}),
        )  # fmt: skip
        os.close(theirs)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def press(self, *keys: bytes | str) -> None:
        """Type."""
        for key in keys:
            os.write(self._ours, key.encode() if isinstance(key, str) else key)

    def wait_for(self, text: bytes | str, *, timeout: float = 60) -> bytes:
        """Read until `text` has come; returns everything up to its end, and forgets it."""
        wanted = text.encode() if isinstance(text, str) else text
        end = time.monotonic() + timeout
        while wanted not in self.seen:
            if not self._read(end - time.monotonic()):
                raise AssertionError(f"{wanted!r} did not come; the screen has {self.seen[-2000:]!r}")
        cut = self.seen.index(wanted) + len(wanted)
        came, self.seen = self.seen[:cut], self.seen[cut:]
        return came

    def leave(self, *keys: bytes, timeout: float = 30) -> int:
        """Press keys that end the program; returns its exit status."""
        self.press(*keys)
        end = time.monotonic() + timeout
        while self._read(end - time.monotonic()):
            pass
        return self.process.wait(timeout)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(seconds, 0))
        if not ready:
            return False
        try:
            came = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.seen += came
        return bool(came)


def plain(screen: bytes) -> bytes:
    """Leave out what moves the cursor, and the terminal's own carriage returns."""
    return _SEQUENCES.sub(b"", screen).replace(b"\r\n", b"\n")
