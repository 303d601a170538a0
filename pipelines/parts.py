"""What the factory knows about one file that it wrote, and the names such files have.

A leaf without pyarrow: receipts and the manifest carry these records.
"""

import re
from dataclasses import dataclass
from typing import Final

TABLES: Final = ("activations", "logits", "generations")
"""Tables that have one part file per unit; the stimuli are one file at the top of the run directory."""
STIMULI: Final = "stimuli"
STIMULI_PATH: Final = "stimuli.parquet"

_UNIT: Final = re.compile(r"\d{5,}(-[01]+)?")


@dataclass(frozen=True, slots=True)
class PartFile:
    """One Parquet file of a run."""

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


def unit_label(unit: int, halves: str = "") -> str:
    """Label of a unit, or of a piece of one: `halves` says which half was taken at each split (`0` or `1`).

    Labels sort as their samples do: 00003 is followed by 00004, and split, by 00003-0 (or 00003-00, 00003-01), 00003-1.
    """
    label = f"{unit:05d}-{halves}" if halves else f"{unit:05d}"
    return checked_label(label)


def checked_label(label: str) -> str:
    """Return `label` if it names a unit; raises ValueError otherwise."""
    if not _UNIT.fullmatch(label):
        raise ValueError(
            f"{label!r} does not name a unit; expected five digits and perhaps a dash with halves, 00003-01"
        )
    return label


def part_path(table: str, unit: int | str) -> str:
    """Path of a unit's part of `table`, relative to the run directory."""
    label = unit_label(unit) if isinstance(unit, int) else checked_label(unit)
    return f"{table}/part-{label}.parquet"
