"""Files of an export: a folder that appears whole, and tables as CSV."""

import csv
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from pipelines import placing
from pipelines.errors import RunError

MARK: Final = "_metadata.json"
"""What every export has a file ending in."""
ROWS: Final = 1024
"""Rows that are written as text together."""


def refuse_in_the_way(target: Path, run_dir: Path, *, force: bool) -> None:
    """Raise InputError where an export to `target` would overwrite something or lie in the run directory."""
    refuse_inside(target, run_dir)
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir() or target.is_symlink():
        raise InputError(f"{target} is there already and is no folder; choose another --out")
    own = any(target.glob(f"*{MARK}"))
    if not own and any(target.iterdir()):
        raise InputError(f"{target} holds files that are no export; choose another --out")
    if own and not force:
        raise InputError(f"{target} holds an export already; give --force to replace it, or another --out")


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
    made = target.with_name(f".{target.name}.{os.getpid()}")
    with placing.disk_errors(target.absolute().parent, f"cannot write {target}", needed):
        made.mkdir(parents=True)
        try:
            free = shutil.disk_usage(made).free
            if needed > free:
                raise RunError(f"the export takes about {needed:,} bytes, where {free:,} are free; export less")
            yield made
            for path in made.iterdir():
                placing.sync_file(path)
            _swap(made, target, force=force)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _swap(made: Path, target: Path, *, force: bool) -> None:
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
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


def write_table(path: Path, table: Any) -> None:
    """Write an Arrow table as CSV: UTF-8, a header row, null as an empty cell, lists as JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.column_names)
        for start in range(0, table.num_rows, ROWS):
            part = table.slice(start, ROWS)
            columns = ([_cell(value) for value in column.to_pylist()] for column in part.columns)
            writer.writerows(zip(*columns, strict=True))


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
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*names, "layer", *(f"h{i}" for i in range(width))])
        for layer, chunks in layers:
            at = 0
            for chunk in chunks:
                for start in range(0, len(chunk), ROWS):
                    some = chunk[start : start + ROWS]
                    told = keys.slice(at, len(some)).select(names).to_pydict()
                    index = zip(*([_cell(value) for value in column] for column in told.values()), strict=True)
                    writer.writerows((*k, layer, *v) for k, v in zip(index, some.astype(str).tolist(), strict=True))
                    at += len(some)
