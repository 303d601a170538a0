"""Tries of units as they show on disk: each has a folder in staging from when a worker begins it to its receipt.

When a worker dies, what it leaves there says what it was doing: computing one unit, and perhaps writing another one.
"""

import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines import placing

MARK: Final = "mark"
"""Keeps the folder while files come and go in it; its time is when the try began."""
COMPUTED: Final = "computed"
"""Is there once the try is computed and waits only for the disk."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A try that goes on."""

    folder: Path

    @property
    def name(self) -> str:
        """A name that no other try has."""
        return self.folder.name

    def computed(self) -> None:
        """Note that what is left to do is writing; a disk that does not take the note shows itself when written to."""
        with suppress(OSError):
            (self.folder / COMPUTED).touch()


@dataclass(frozen=True, slots=True)
class Left:
    """A try that began and did not end."""

    host: str
    pid: int
    beside: bool
    """It was being written while the same process was computing another unit."""
    since: float
    """When it began, in seconds since 1970."""


@contextmanager
def begun(run_dir: Path, piece: str, prefix: str) -> Iterator[Begun]:
    """Leave a mark that a try of this process has begun, for as long as it lasts, and give it a name of its own."""
    name = f"{prefix}{uuid.uuid4().hex[:8]}.{os.getpid()}.{socket.gethostname()}"
    folder = run_dir / placing.STAGING / name
    with placing.disk_errors(run_dir, f"cannot begin unit {piece}", 0):
        (folder / MARK).mkdir(parents=True)
        now = time.time()
        os.utime(folder / MARK, (now, now))  # by this host's clock: a file server has its own
    try:
        yield Begun(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def left_by(run_dir: Path, prefix: str) -> list[Left]:
    """All tries with this prefix that began and did not end, in the order in which they began."""
    found = []
    for folder in (run_dir / placing.STAGING).glob(f"{prefix}*"):
        _, _, _, pid, host = folder.name.split(".", 4)
        others = [other for other in _of_process(run_dir, int(pid), host) if other != folder]
        found.append(Left(host, int(pid), (folder / COMPUTED).exists() and bool(others), _since(folder)))
    return sorted(found, key=lambda left: left.since)


def busy_seconds(run_dir: Path, pid: int) -> float:
    """How long a worker process of this host has been at the oldest of its tries; 0 when it is at none."""
    begun_at = [0.0]
    for folder in _of_process(run_dir, pid, socket.gethostname()):
        since = _since(folder)
        if since:
            begun_at.append(time.time() - since)
    return max(begun_at)


def _since(folder: Path) -> float:
    """When a try began; 0 where it has just ended."""
    with suppress(OSError):
        return (folder / MARK).stat().st_mtime
    return 0.0


def _of_process(run_dir: Path, pid: int, host: str) -> list[Path]:
    return [folder for folder in (run_dir / placing.STAGING).glob(f"*.{pid}.{host}") if folder.is_dir()]
