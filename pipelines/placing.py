"""Putting a finished file where it will stay: staged, synced, then linked so that the first writer wins.

A file has its final name only when it is complete. Nothing is ever written beside the parts, because readers take every
file in a table's folder for a part of it.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pipelines.errors import RunError

STAGING: Final = ".ember/staging"
CHUNK: Final = 1 << 20

_NAME: Final = re.compile(r"\w[\w.-]*")

_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLOSED: Final = {errno.EROFS, errno.EACCES, errno.EPERM}
_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in chunks of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def staged(run_dir: Path, attempt: str, name: str) -> Iterator[Path]:
    """Give a path in `.ember/staging/<attempt>/` to write to; whatever is left there at the end is removed."""
    if not _NAME.fullmatch(attempt):
        raise ValueError(f"attempt {attempt!r} must be a plain name: it becomes a directory of its own")
    folder = run_dir / STAGING / attempt
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    try:
        yield path
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def disk_errors(run_dir: Path, what: str, needed: int) -> Iterator[None]:
    """Turn a full, read-only or forbidden disk into a RunError that says what to do; `needed` is in bytes."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise RunError(
                f"{what}: no space left in {run_dir}: about {_size(needed)} needed, {_size(_free(run_dir))} free; "
                "nothing half-written was kept. Free some space and run the same command again: it goes on from here"
            ) from error
        if error.errno in _CLOSED:
            raise RunError(
                f"{what}: {run_dir} cannot be written ({os.strerror(error.errno)}), and about {_size(needed)} must be; "
                "allow writing there or choose another output directory"
            ) from error
        if error.errno is not None:
            raise RunError(
                f"{what}: writing in {run_dir} failed ({os.strerror(error.errno)}); nothing half-written was kept. "
                "Run the same command again when the disk answers: it goes on from here"
            ) from error
        raise


def clear_staging(run_dir: Path) -> None:
    """Remove what killed attempts left; only for the one process that holds the lock of `run_dir`, with no workers."""
    shutil.rmtree(run_dir / STAGING, ignore_errors=True)


def place(source: Path, target: Path) -> bool:
    """Link a synced `source` to `target`, so that it appears whole or not at all; False if `target` was there first.

    The directories that hold `target` are created and synced. `source` keeps its name.
    """
    _make_folder(target.parent)
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_LINKS and os.access(target.parent, os.W_OK):
            raise RunError(
                f"{target.parent}: this file system makes no hard links, which Ember needs to put a part in place "
                "at once; choose an output directory on another file system"
            ) from error
        raise
    sync_folder(target.parent)
    return True


def write_over(folder: Path, name: str, data: bytes, kind: str) -> None:
    """Put `data` at once in place of what `folder` has as `name`; `kind` says who stages it.

    Raises RunError for a disk that cannot be written; what was there before then stays.
    """
    with (
        disk_errors(folder, f"cannot write {name}", len(data)),
        staged(folder, f"{kind}-{os.getpid()}", name) as path,
    ):
        path.write_bytes(data)
        sync_file(path)
        path.replace(folder / name)
        sync_folder(folder)


def sync_file(path: Path) -> None:
    """Force a file's bytes to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force a directory's entries to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def _free(run_dir: Path) -> int:
    existing = next((p for p in (run_dir, *run_dir.parents) if p.is_dir()), None)
    return shutil.disk_usage(existing).free if existing else 0


def _size(n: int) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 100_000 else f"{n} bytes"
