"""How far a run is, read from its directory alone and without its lock."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ember.errors import EmberError, InputError
from pipelines import receipts
from pipelines.journal import last_stop
from pipelines.lock import owner_of
from pipelines.manifest import MANIFEST, read_manifest
from pipelines.resume import outermost
from pipelines.state import IDENTITY

State = Literal["complete", "partial", "running", "unfinished", "damaged"]


@dataclass(frozen=True, slots=True)
class Status:
    """A run directory at this moment; part files are not opened."""

    directory: str
    state: State
    prompts: int
    done: int
    failed: int
    pending: int
    units_done: int
    writer: str | None
    """Who holds the lock."""
    problem: str | None
    """Why the manifest cannot be read, where one is there."""
    stopped: str | None
    """The error that stopped the last session of an unfinished run, where one did."""
    next_step: str

    @property
    def record(self) -> dict[str, Any]:
        """The status as plain data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Say it in words."""
        told = [
            f"{self.directory}: {self.state}",
            f"prompts: {self.done} done, {self.failed} failed, {self.pending} pending, of {self.prompts} "
            f"({self.units_done} units finished)",
        ]
        if self.writer:
            told.append(f"being written by {self.writer}")
        if self.problem:
            told.append(f"the manifest cannot be read: {self.problem}")
        if self.stopped:
            told.append(f"the last session was stopped: {self.stopped}")
        return [*told, f"next: {self.next_step}"]


def read_status(run_dir: Path) -> Status:
    """Look at a run. Raises InputError when there is none in `run_dir`."""
    try:
        prompts = len(json.loads((run_dir / IDENTITY).read_bytes())["stimuli"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{run_dir} holds no run that Ember has begun ({IDENTITY} is absent or damaged); give the output.dir of one"
        ) from error
    found = outermost(receipts.read_all(run_dir))
    failed = sum(len(receipt.failures) for receipt in found)
    covered = sum(receipt.end - receipt.start for receipt in found)
    owner = owner_of(run_dir)
    problem = None if owner else _problem(run_dir)
    state: State = "unfinished"
    if owner:
        state = "running"
    elif problem is not None:
        state = "damaged"
    elif os.path.lexists(run_dir / MANIFEST) and covered == prompts:
        state = "partial" if failed else "complete"
    stopped = last_stop(run_dir) if state == "unfinished" else None
    return Status(
        directory=str(run_dir),
        state=state,
        prompts=prompts,
        done=covered - failed,
        failed=failed,
        pending=prompts - covered,
        units_done=len(found),
        writer=str(owner) if owner else None,
        problem=problem,
        stopped=stopped,
        next_step=("see to what stopped it, then " if stopped else "") + _next_step(run_dir, state),
    )


def _problem(run_dir: Path) -> str | None:
    """Say why the manifest cannot be read; None where it can, or where there is none yet."""
    if not os.path.lexists(run_dir / MANIFEST):
        return None
    try:
        read_manifest(run_dir)
    except (EmberError, OSError) as error:
        return str(error)
    return None


def _next_step(run_dir: Path, state: State) -> str:
    return {
        "complete": f"pipelines.load({str(run_dir)!r}), or check it: ember pipeline verify {run_dir}",
        "partial": f"see {run_dir}/failures.jsonl; to try the failed prompts again, run the same config",
        "running": "wait, or stop it: it can be gone on with",
        "damaged": f"put the run's own {MANIFEST} back, or remove {run_dir / MANIFEST} and run the same config again "
        f"(as resolved: {run_dir}/config.yaml): what is finished is kept, and the manifest is written anew",
        "unfinished": f"run the same config again (as resolved: {run_dir}/config.yaml); it goes on from here",
    }[state]
