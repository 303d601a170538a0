"""Where Ember keeps what it can compute again: file hashes and compiled kernels. Never a condition for working.

`EMBER_CACHE_DIR`, else `$XDG_CACHE_HOME/ember`, else `~/.cache/ember`. Where none of these can be written (a read-only
home), a directory of the user's own below the system's temporary one; where that fails too, there is no cache.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_directory(*parts: str) -> Path | None:
    """Return a writable cache directory, created if need be, with `parts` below it; None where there is none."""
    for base in _candidates():
        folder = base.joinpath(*parts)
        if _writable(folder):
            return folder
    private = _private_temporary()
    if private is None:
        return None
    folder = private.joinpath(*parts)
    return folder if _writable(folder) else None


def _candidates() -> Iterator[Path]:
    named = os.environ.get("EMBER_CACHE_DIR")
    if named:
        yield Path(named)
        return
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and Path(xdg).is_absolute():
        yield Path(xdg) / "ember"
        return
    try:
        yield Path.home() / ".cache" / "ember"
    except RuntimeError:  # a user id without a home directory
        return


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _private_temporary() -> Path | None:
    """Return a directory that nobody else can write: compiled code is loaded from there."""
    if not hasattr(os, "getuid"):
        return None
    folder = Path(tempfile.gettempdir()) / f"ember-cache-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if ours else None
