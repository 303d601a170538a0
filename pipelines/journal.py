"""What happened in a run, kept for people and tests: lines of JSON under `.ember/log/`, outside the run's identity.

`journal.jsonl` is written by the client: dispatched, done, died, split, isolated, stopped. Each worker process
writes a file of its own, with a line before each forward pass and one after, so that passes can be counted however the
worker ends.
"""

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pipelines.state import LOGS

CLIENT: Final = f"{LOGS}/journal.jsonl"
TAIL: Final = 1 << 16
"""Bytes at the end of a journal in which its last line is looked for."""


def note(run_dir: Path, event: str, **told: Any) -> None:
    """Add a line to the client's journal."""
    _append(run_dir / CLIENT, event, told)


def note_worker(run_dir: Path, event: str, **told: Any) -> None:
    """Add a line to this worker's log."""
    _append(run_dir / LOGS / f"worker-{socket.gethostname()}-{os.getpid()}.jsonl", event, told)


def events(run_dir: Path) -> list[dict[str, Any]]:
    """All lines of all logs in the order of their times; torn last lines of killed processes are left out."""
    found: list[dict[str, Any]] = []
    for path in sorted((run_dir / LOGS).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
    return sorted(found, key=lambda line: float(line["time"]))


def last_stop(run_dir: Path) -> str | None:
    """Say what error stopped the last session; None where none did, as after a kill, or where nothing is legible."""
    try:
        with (run_dir / CLIENT).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            last = json.loads(file.read().splitlines()[-1])
        return str(last["cause"]) if last["event"] == "stopped" else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def how_to_go_on(run_dir: Path) -> str:
    """Say how a run without a manifest is finished: where an error stopped it, that comes first."""
    cause = last_stop(run_dir)
    first = "Run" if cause is None else f"Its last session was stopped: {cause}. See to that, then run"
    return f"{first} the same `ember pipeline run CONFIG` again: it goes on where it stopped"


def _append(path: Path, event: str, told: dict[str, Any]) -> None:
    line = json.dumps({"time": round(time.time(), 3), "event": event, **told}, ensure_ascii=False) + "\n"
    # The journal is no evidence that anything rests on: a full disk shows itself where results are written.
    with suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(line)
