"""sha256 of model files, remembered by what identifies a file's content to the system."""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ember.cache_directory import cache_directory
from ember.errors import GGUFError
from ember.gguf.mapping import Part

_CHUNK: Final = 4 * 1024 * 1024
_SETTLED_NS: Final = 2_000_000_000
"""A file changed less than this ago is not remembered: it could change again within one tick of its clock."""


def joint_sha256(parts: Sequence[Part]) -> str:
    """Return the file's own sha256; for a split model, over the parts' hex digests, a newline after each."""
    digests = [part_sha256(part) for part in parts]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def part_sha256(part: Part) -> str:
    """Return the sha256 of one file, from the cache where the same file was hashed before."""
    folder = cache_directory("sha256")
    entry = folder / f"{_key(part)}.json" if folder else None
    remembered = _recall(entry, part) if entry else None
    if remembered:
        return remembered
    digest = _hash(part)
    if entry and time.time_ns() - max(part.mtime_ns, part.ctime_ns) > _SETTLED_NS:
        _remember(entry, part, digest)
    return digest


def _identity(part: Part) -> dict[str, int]:
    return {
        "device": part.device,
        "inode": part.inode,
        "size": part.size,
        "mtime_ns": part.mtime_ns,
        "ctime_ns": part.ctime_ns,
    }


def _key(part: Part) -> str:
    return hashlib.sha256(json.dumps(_identity(part)).encode()).hexdigest()[:32]


def _hash(part: Part) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_CHUNK, part.size)))
    try:
        with part.path.open("rb", buffering=0) as file:
            _check_same(part, file.fileno())
            while size := file.readinto(buffer):
                digest.update(buffer[:size])
            _check_same(part, file.fileno())
    except OSError as error:
        raise GGUFError(f"{part.path}: file: cannot be read to compute its sha256: {error.strerror}") from error
    return digest.hexdigest()


def _check_same(part: Part, descriptor: int) -> None:
    """Check that what is being read is still the file that was opened; a new link or mode makes no other file."""
    now = replace(Part.of(part.path, os.fstat(descriptor)), ctime_ns=part.ctime_ns)
    if now != part:
        raise changed(part)


def changed(part: Part) -> GGUFError:
    """Return the error for a file that is no longer the one that was opened."""
    return GGUFError(
        f"{part.path}: file: model file changed during the run: size, inode or modification time are no longer those "
        f"it was opened with ({part.size} bytes); put the file back, or start again with the new one"
    )


def _recall(entry: Path, part: Part) -> str | None:
    try:
        record = json.loads(entry.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("file") != _identity(part):
        return None
    digest = record.get("sha256")
    return digest if isinstance(digest, str) and len(digest) == 64 else None


def _remember(entry: Path, part: Part, digest: str) -> None:
    """Write the cache entry whole or not at all; a full disk costs the entry only."""
    record = json.dumps({"file": _identity(part), "sha256": digest})
    with contextlib.suppress(OSError):
        descriptor, staged = tempfile.mkstemp(dir=entry.parent, prefix=".", suffix=".json")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(record)
            Path(staged).replace(entry)
        except OSError:
            Path(staged).unlink(missing_ok=True)
            raise
