"""Arrays that a verb writes: a .npy or .npz with its origin beside it, put in place whole or not at all."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from ember.capture import Captures
from ember.cli import options
from ember.errors import InputError
from ember.hooks.loading import ExperimentFactory

SUFFIXES: Final = (".npy", ".npz")


def check_out(out: Path, n_sites: int) -> None:
    """Raise InputError for a file that cannot hold the sites or has no folder, before anything is computed."""
    if out.suffix not in SUFFIXES or (out.suffix == ".npy" and n_sites > 1):
        raise InputError(f"--out {out}: expected a .npz, or a .npy with a single site")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: expected a file in a folder that exists")


def write_captures(out: Path, found: Captures, experiments: Sequence[ExperimentFactory] = ()) -> Path:
    """Write the arrays to `out`; where they come from, which experiments acted and what they found, to `out`.json.

    Returns the latter. Raises InputError where a file cannot be written, or findings are not plain data; what stood in
    its place then still does.
    """

    def arrays(file: IO[bytes]) -> None:
        if out.suffix == ".npy":
            np.save(file, next(iter(found.arrays.values())))
        else:
            np.savez(file, allow_pickle=False, rows=found.rows, **dict(found.arrays))

    beside = out.with_suffix(out.suffix + ".json")
    acted: dict[str, Any] = {}
    if experiments:
        findings = [{"prompt": at, "experiment": name, "results": results} for at, name, results in found.findings]
        acted = {"experiments": [asdict(one) for one in experiments], "findings": findings}
    told = options.found_json(found.provenance | acted, indent=1) + "\n"
    _put(beside, lambda file: file.write(told.encode()))
    _put(out, arrays)
    return beside


def _put(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write beside the place and move there: what stood there stays until the new file is whole."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
            # mkstemp lets only the owner read; a result is as readable as any other file of the user
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
