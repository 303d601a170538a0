"""Files of an export: a folder that appears whole, and tables as CSV."""

import csv
import fcntl
import glob
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from pipelines import placing
from pipelines.errors import RunError

MARK: Final = "_metadata.json"
"""What every export has a file ending in."""
SCHEMA: Final = "ember.export/v1"
"""What that file says it is."""
OLD: Final = ".old"
"""What the name of an earlier export ends in while another takes its place."""
ROWS: Final = 1024
"""Rows that are written as text together."""


def refuse_in_the_way(target: Path, *, force: bool) -> None:
    """Raise InputError where an export to `target` would overwrite something.

    `force` gives up an earlier export: its metadata and the files that it lists, and nothing else.
    """
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir() or target.is_symlink():
        raise InputError(f"{target} is there already and is no folder; choose another --out")
    held = sorted(target.iterdir())
    own = {name for path in held if path.name.endswith(MARK) for name in _listed(path)}
    if held and not own:
        raise InputError(f"{target} holds files that are no export; choose another --out")
    if held and not force:
        raise InputError(f"{target} holds an export already; give --force to replace it, or another --out")
    if other := [path.name for path in held if path.name not in own or path.is_symlink() or not path.is_file()]:
        raise InputError(
            f"{target} holds {other[0]!r}, which does not belong to the export there; move it away, or choose "
            "another --out"
        )


def _listed(path: Path) -> set[str]:
    """Files that an export's metadata lists, and the metadata; none where it is not that of an export."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return set()
    files = found.get("files") if isinstance(found, dict) and found.get("schema_version") == SCHEMA else None
    return {path.name, *files} if isinstance(files, dict) else set()


def refuse_inside(target: Path, run_dir: Path) -> None:
    """Raise InputError where `target` is the run directory or lies in it."""
    inside = run_dir.resolve()
    if target.resolve() == inside or inside in target.resolve().parents:
        raise InputError(f"{target} lies in the run directory, whose files are the run's alone; choose another --out")


@contextmanager
def new_folder(target: Path, needed: int, *, force: bool) -> Iterator[Path]:
    """Give a folder that takes the place of `target` if all goes well, and is gone otherwise; `needed` is in bytes.

    Raises RunError for a disk that is full or cannot be written.
    """
    with placing.disk_errors(target.absolute().parent, f"cannot write {target}", needed):
        made, handle = _claim(target)
        try:
            free = shutil.disk_usage(made).free
            if needed > free:
                raise RunError(f"the export takes about {needed:,} bytes, where {free:,} are free; export less")
            yield made
            for path in made.iterdir():
                placing.sync_file(path)
            placing.sync_folder(made)
            _swap(made, target, force=force)
        finally:
            shutil.rmtree(made, ignore_errors=True)
            os.close(handle)


def sweep(target: Path) -> None:
    """Remove what killed exports to `target` left beside it; an earlier one that they had moved aside is put back."""
    with placing.disk_errors(target.absolute().parent, f"cannot write {target}", 0):
        for stray in sorted(target.absolute().parent.glob(f".{glob.escape(target.name)}.*")):
            if re.fullmatch(r"\d+(\.old)?", stray.name.removeprefix(f".{target.name}.")):
                _remove(stray, target)


def _remove(stray: Path, target: Path) -> None:
    """Remove a stray folder unless somebody is writing it, or this file system cannot tell."""
    try:
        handle = os.open(stray, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    with _closing(handle), suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stray.suffix == OLD and not target.exists():
            stray.rename(target)
        else:
            shutil.rmtree(stray, ignore_errors=True)


def _claim(target: Path) -> tuple[Path, int]:
    """Make the folder that is written to, and hold its lock, which the system drops however this process ends."""
    made = target.with_name(f".{target.name}.{os.getpid()}")
    while True:
        made.mkdir(parents=True)
        handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Between making and locking it another process may have taken it for a stray one.
        if made.exists():
            return made, handle
        os.close(handle)


@contextmanager
def _closing(handle: int) -> Iterator[None]:
    """Close a file descriptor at the end."""
    try:
        yield
    finally:
        os.close(handle)


def _swap(made: Path, target: Path, *, force: bool) -> None:
    old = target.with_name(f".{target.name}.{os.getpid()}{OLD}")
    if force and target.exists():
        target.rename(old)
    # Onto an empty folder this succeeds, onto one that was filled meanwhile it does not.
    made.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    placing.sync_folder(target.absolute().parent)


def allocate(path: Path) -> None:
    """Give a sparse file its bytes on the disk: writing to a mapped file on a full disk would end the process."""
    with path.open("rb+") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def write_array(path: Path, shape: tuple[int, ...], layers: Iterable[Iterable[NDArray[np.float32]]]) -> None:
    """Write a float32 array [rows, layers, …] as .npy: of each layer its rows, piece by piece; never all in memory."""
    if 0 in shape:
        np.save(path, np.empty(shape, np.float32))
        return
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    allocate(path)
    for slot, chunks in enumerate(layers):
        at = 0
        for chunk in chunks:
            out[at : at + len(chunk), slot] = chunk
            at += len(chunk)
    out.flush()


class _Lines:
    """Writes rows that end in CR LF with LF alone."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, row: str) -> None:
        """Take one row, as `csv` hands it over."""
        self._file.write(row.removesuffix("\r\n") + "\n")


def csv_rows(file: TextIO) -> Any:
    """Give a writer of CSV rows that end in a line feed; texts with a line feed or a carriage return are quoted.

    Of the two `csv` always quotes what rows end in; the other one, standing alone, only from Python 3.11.9 on.
    """
    return csv.writer(_Lines(file), lineterminator="\r\n")


def write_table(path: Path, table: Any) -> None:
    """Write an Arrow table as CSV: UTF-8, a header row, null as an empty cell, lists as JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv_rows(file)
        writer.writerow(table.column_names)
        for start in range(0, table.num_rows, ROWS):
            writer.writerows(cells(table.slice(start, ROWS)))


def cells(table: Any) -> Iterator[tuple[Any, ...]]:
    """Give the rows of an Arrow table as CSV cells."""
    return zip(*([_cell(value) for value in column.to_pylist()] for column in table.columns), strict=True)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return ("true" if value else "false") if isinstance(value, bool) else value


def write_vectors(
    path: Path, keys: Any, layers: Iterable[tuple[int, Iterable[NDArray[np.float32]]]], width: int
) -> None:
    """Write vectors as CSV, layer after layer: a row's keys, its layer, and `width` numbers.

    Numbers have the fewest digits that give back the same float32. `keys` is the Arrow table of the rows of a layer.
    """
    names = [name for name in keys.column_names if name != "layer"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv_rows(file)
        writer.writerow([*names, "layer", *(f"h{i}" for i in range(width))])
        for layer, chunks in layers:
            at = 0
            for chunk in chunks:
                for start in range(0, len(chunk), ROWS):
                    some = chunk[start : start + ROWS]
                    index = cells(keys.slice(at, len(some)).select(names))
                    writer.writerows((*k, layer, *v) for k, v in zip(index, some.astype(str).tolist(), strict=True))
                    at += len(some)
