"""What experiments found: `experiments/part-00000.jsonl`, one part for each unit, one line for each finding.

A line is canonical JSON of `experiment` (its name), `result` (what its `results()` returned), `sample_index` and
`stimulus_id`; lines stand in the order of samples, and those of one sample in the order of its experiments. Equal
findings give equal bytes, so a part's checksum is the hash of its content too.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines import placing
from pipelines.canonical import canonical_json
from pipelines.errors import RunError
from pipelines.parts import EXPERIMENTS, PartFile, part_path


@dataclass(frozen=True, slots=True)
class Finding:
    """What one experiment found in one prompt."""

    sample_index: int
    stimulus_id: str
    experiment: str
    result: Any
    """Plain data."""

    def line(self) -> str:
        """Return the finding as a line of JSON. Raises ValueError or TypeError for what JSON cannot say."""
        return canonical_json(asdict(self)) + "\n"

    def settled(self) -> "Finding":
        """Return the finding as it is now, whatever its experiment does to its own objects afterwards.

        Raises as `line` does, RecursionError for what is nested too deeply, UnicodeEncodeError for half a character.
        """
        line = self.line()
        line.encode()
        return Finding(**json.loads(line))


def write_findings(
    run_dir: Path, unit: int | str, attempt: str, findings: Sequence[Finding], *, sample_start: int, sample_end: int
) -> PartFile:
    """Write a unit's findings, in sample order, as its part; the first attempt wins.

    Raises RunError for a disk that cannot be written, and for other findings already in place.
    """
    ordered = sorted(findings, key=lambda finding: finding.sample_index)
    data = "".join(finding.line() for finding in ordered).encode()
    path, digest = part_path(EXPERIMENTS, unit), hashlib.sha256(data).hexdigest()
    with (
        placing.disk_errors(run_dir, f"cannot write {path}", len(data)),
        placing.staged(run_dir, attempt, path.replace("/", "-")) as staged,
    ):
        staged.write_bytes(data)
        placing.sync_file(staged)
        if not placing.place(staged, run_dir / path) and placing.sha256_file(run_dir / path) != digest:
            raise RunError(
                f"{path} is already there with other findings than this attempt's; an experiment must find the same in "
                "the same prompt. If the file was damaged, delete it and run the same command again"
            )
    return PartFile(EXPERIMENTS, path, len(ordered), len(data), digest, digest, sample_start, sample_end)


def read_findings(path: Path) -> Iterator[Finding]:
    """Read a part line by line. Raises ValueError for a line that is no finding."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield Finding(**json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"line {number} is no finding: {error}") from error
