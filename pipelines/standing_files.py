"""Files of a run that are written before the first unit: the resolved config, the stimuli, and the plan for workers."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pipelines import placing, shards
from pipelines.config import dump
from pipelines.memory import give_back
from pipelines.parts import STIMULI_PATH, PartFile
from pipelines.plan import Plan
from pipelines.state import STIMULI_RECORD
from pipelines.unit_file import write_unit_file

CONFIG: Final = "config.yaml"


def write_standing_files(run_dir: Path, plan: Plan, footer: Mapping[str, str]) -> tuple[str, PartFile]:
    """Write what is not there yet or was damaged; returns the path of the plan for workers and the stimuli's record."""
    replace_file(run_dir, run_dir / CONFIG, dump(plan.config))
    stimuli = _standing_stimuli(run_dir)
    if stimuli is None:
        with placing.disk_errors(run_dir, f"cannot write {STIMULI_PATH}", 0):
            (run_dir / STIMULI_PATH).unlink(missing_ok=True)
        stimuli = shards.write_stimuli(run_dir, plan.samples, attempt=f"stimuli-{os.getpid()}", metadata=footer)
        replace_file(run_dir, run_dir / STIMULI_RECORD, json.dumps(asdict(stimuli)))
    unit_file = write_unit_file(run_dir, plan)
    give_back()
    return unit_file, stimuli


def replace_file(run_dir: Path, path: Path, text: str) -> None:
    """Put a small text in place at once, over an older one; raises RunError for a disk that does not take it."""
    data = text.encode()
    with (
        placing.disk_errors(run_dir, f"cannot write {path.name}", len(data)),
        placing.staged(run_dir, f"{path.stem}-{os.getpid()}", path.name) as staged,
    ):
        staged.write_bytes(data)
        placing.sync_file(staged)
        staged.replace(path)
        placing.sync_folder(path.parent)


def _standing_stimuli(run_dir: Path) -> PartFile | None:
    try:
        record = PartFile(**json.loads((run_dir / STIMULI_RECORD).read_bytes()))
        path = run_dir / record.path
        holds = path.stat().st_size == record.bytes and placing.sha256_file(path) == record.sha256
    except (OSError, ValueError, TypeError):
        return None
    return record if holds else None
