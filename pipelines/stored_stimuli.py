"""The stimuli of a finished run as records again, so that a run can be made anew without the file they came from."""

from pathlib import Path
from typing import Any

from pipelines import tables
from pipelines.errors import VerifyError
from pipelines.manifest import Manifest, stimuli_sha256
from pipelines.parts import STIMULI_PATH
from pipelines.rows import LABEL_PREFIX
from pipelines.stimuli.packed import pack
from pipelines.stimuli.record import Stimulus, StimulusSet, Target


def read_stored(run_dir: Path, manifest: Manifest) -> StimulusSet:
    """Read the stimuli of a run, in the user's order.

    Raises VerifyError unless they are exactly those that the manifest was made with.
    """
    table = tables.joined(list(tables.read_groups(run_dir / STIMULI_PATH)), tables.stimuli_schema(()))
    found = [_stimulus(row) for row in sorted(table.to_pylist(), key=lambda row: int(row["source_index"]))]
    if stimuli_sha256(found) != manifest.inputs.stimuli_sha256:
        raise VerifyError(
            f"{run_dir / STIMULI_PATH} does not hold the stimuli that the manifest was made with; "
            "`ember pipeline verify` lists what is wrong"
        )
    return StimulusSet(pack(found), (), dict(manifest.origin.stimuli or {}))


def _stimulus(row: dict[str, Any]) -> Stimulus:
    names = (name for name in row if name.startswith(LABEL_PREFIX) and row[name] is not None)
    start, end = row["target_byte_start"], row["target_byte_end"]
    return Stimulus(
        source_index=row["source_index"],
        id=row["id"],
        prompt=row["prompt"],
        labels={name.removeprefix(LABEL_PREFIX): row[name] for name in names},
        template=row["template"] or None,
        reveals=tuple(row["reveals"]),
        target=Target(row["target_text"], start, end) if start >= 0 else None,
        expected=row["expected"] if row["has_expected"] else None,
        expect_mode=row["expect_mode"],
        original=None if row["original_prompt"] == row["prompt"] else row["original_prompt"],
    )
