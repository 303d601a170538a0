"""One writer per run directory.

The lock is an advisory `flock` on `.ember/lock`, which the system drops when its owner dies however that happens, and
the file's text, which says who owns it. The text also guards shared file systems where flock reaches only processes
of one host: text left by another host is believed until someone removes the file.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pipelines import placing
from pipelines.errors import LockedError
from pipelines.state import LOCK

OWNER_WAIT: Final = 1.0
"""Seconds that a refused process waits for the owner to have written its name."""

LOOKS: Final = 5
"""Times that a lock which is held is tried again."""

_OWN: Final[set[Path]] = set()
"""Locks that this process holds: its number in a file may be that of a process before it."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lock."""

    host: str
    pid: int
    since: str
    """UTC, ISO 8601."""

    def __str__(self) -> str:
        """Words for a message."""
        return f"process {self.pid} on {self.host}, since {self.since}"


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Hold the lock of `run_dir`, whose `.ember` exists; raises LockedError at once when another process has it."""
    path = run_dir / LOCK
    with placing.disk_errors(run_dir, "cannot lock the run directory", 0):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _acquire(descriptor, path)
        _write(descriptor, asdict(_me()))
        _OWN.add(path.resolve())
        try:
            yield
        finally:
            _OWN.discard(path.resolve())
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def owner_of(run_dir: Path) -> Owner | None:
    """Who is written in the lock file; None when nobody is, or a process of this host that does not hold the lock.

    A process with the same number proves nothing: after a restart of the machine, or of a container, it is another one.
    """
    path = run_dir / LOCK
    owner = _read(path)
    if owner is None or owner.host != socket.gethostname():
        return owner
    return owner if _held(path, owner) else None


def _held(path: Path, owner: Owner) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return path.resolve() in _OWN if owner.pid == os.getpid() else _alive(owner.pid)
    finally:
        os.close(descriptor)
    return False


def _acquire(descriptor: int, path: Path) -> None:
    try:
        _flock(descriptor)
    except BlockingIOError:
        raise LockedError(_refusal(path, _wait_for_owner(path))) from None
    except OSError:
        # A file system without locks: the text alone decides.
        owner = owner_of(path.parent.parent)
        if owner and owner.host == socket.gethostname():
            raise LockedError(_refusal(path, owner)) from None
    owner = _read(path)
    if owner and owner.host != socket.gethostname():
        raise LockedError(
            f"{_refusal(path, owner)}. Whether it still runs cannot be seen from {socket.gethostname()}: "
            f"if it does not, remove {path} and run again"
        )


def _flock(descriptor: int) -> None:
    """Take the lock; tries again for a moment, since who only looks whether it is held holds it meanwhile."""
    for _ in range(LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.01)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _refusal(path: Path, owner: Owner | None) -> str:
    return (
        f"{path.parent.parent} is being written by {owner or 'another process'}; wait for it or use another output.dir"
    )


def _wait_for_owner(path: Path) -> Owner | None:
    deadline = time.monotonic() + OWNER_WAIT
    while (owner := _read(path)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return owner


def _me() -> Owner:
    return Owner(socket.gethostname(), os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))


def _write(descriptor: int, record: dict[str, object]) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(record).encode(), 0)
    os.fsync(descriptor)


def _read(path: Path) -> Owner | None:
    try:
        found = json.loads(path.read_bytes())
        return Owner(str(found["host"]), int(found["pid"]), str(found["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
