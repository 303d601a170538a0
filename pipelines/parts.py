"""What the factory knows about one file that it wrote, and the names such files have.

A leaf without pyarrow: receipts and the manifest carry these records.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines.errors import VerifyError

LAYOUT: Final = "ember.layout/v1"
"""Tables, columns and writer options together."""
GENERATIONS: Final = "generations"
ATTENTION: Final = "attention"
TABLES: Final = ("activations", "logits", GENERATIONS, ATTENTION)
"""Tables that have one part file per unit; the stimuli are one file at the top of the run directory."""
EXPERIMENTS: Final = "experiments"
"""What experiments found: JSON lines, one part for each unit."""
STIMULI: Final = "stimuli"
STIMULI_PATH: Final = "stimuli.parquet"

_UNIT: Final = re.compile(r"\d{5,}(-[01]+)?")


@dataclass(frozen=True, slots=True)
class PartFile:
    """One Parquet file of a run, or one of JSON lines."""

    table: str
    path: str
    """Relative to the run directory, with forward slashes."""
    rows: int
    bytes: int
    sha256: str
    """Of the file's bytes: a checksum, which changes with the version of pyarrow."""
    content_sha256: str
    """Of the decoded columns (`pipelines.content`): part of the run's identity."""
    sample_start: int
    sample_end: int
    """Half-open range of sample indices that the file answers for."""


def confined(run_dir: Path, part: PartFile) -> Path:
    """Return where a part lies; raises VerifyError unless its path is the name of a part of its table, without links.

    A manifest may come from anywhere: its paths are judged by themselves, before anything is opened.
    """
    named = rf"{re.escape(part.table)}/part-{_UNIT.pattern}\.{suffix(part.table)}"
    named = STIMULI_PATH if part.table == STIMULI else named
    if part.table not in (*TABLES, EXPERIMENTS, STIMULI) or not re.fullmatch(named, part.path):
        raise VerifyError(
            f"{part.path!r}: no path of a part of table {part.table!r}; it must lie in the run directory under the "
            "name that Ember gives it, so it was not looked at"
        )
    path = run_dir / part.path
    for step in (path.parent, path):
        if step != run_dir and step.is_symlink():
            raise VerifyError(
                f"{part.path!r}: {step.name} is a symbolic link; parts are plain files of the run directory"
            )
    return path


def suffix(table: str) -> str:
    """What the names of a table's parts end in."""
    return "jsonl" if table == EXPERIMENTS else "parquet"


def part_path(table: str, unit: int | str) -> str:
    """Path of a part of `table`, relative to the run directory; `unit` is an index or the name of a piece of one.

    Names sort as their samples do: 00003 is followed by 00004, and split, by 00003-0 (or 00003-00, 00003-01), 00003-1.
    """
    label = f"{unit:05d}" if isinstance(unit, int) else unit
    if not _UNIT.fullmatch(label):
        raise ValueError(
            f"{label!r} names no unit; expected five digits and perhaps a dash with halves, as in 00003-01"
        )
    return f"{table}/part-{label}.{suffix(table)}"
