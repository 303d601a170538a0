"""What happened in a run, kept for people and tests: lines of JSON under `.ember/log/`, outside the run's identity.

`journal.jsonl` is written by the client: dispatched, done, died, split, isolated. Each worker process writes a file
of its own, with a line before each forward pass and one after, so that passes can be counted however the worker ends.
"""

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines.state import LOGS


def note(run_dir: Path, event: str, **told: Any) -> None:
    """Add a line to the client's journal."""
    _append(run_dir / LOGS / "journal.jsonl", event, told)


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


def _append(path: Path, event: str, told: dict[str, Any]) -> None:
    line = json.dumps({"time": round(time.time(), 3), "event": event, **told}, ensure_ascii=False) + "\n"
    # The journal is no evidence that anything rests on: a full disk shows itself where results are written.
    with suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(line)
