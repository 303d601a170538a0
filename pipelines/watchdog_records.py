"""How worker processes ended: small files that the watchdog writes and the client reads."""

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pipelines.state import DEATHS


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker process ended."""

    host: str
    pid: int
    kind: str
    """`memory`, `time-out`, `signal` or `exit`."""
    detail: str


def death_file(run_dir: Path, host: str, pid: int) -> Path:
    """Where the end of a worker process is recorded."""
    return run_dir / DEATHS / f"{host}-{pid}.json"


def read_death(run_dir: Path, host: str, pid: int, wait: float = 0.0) -> Death | None:
    """Read how a process ended, waiting up to `wait` seconds for the record; None if nobody wrote one."""
    path, deadline = death_file(run_dir, host, pid), time.monotonic() + wait
    while True:
        with suppress(OSError, ValueError, TypeError):
            return Death(**json.loads(path.read_bytes()))
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.05)


def write_death(run_dir: Path, death: Death) -> None:
    """Record the end of a process; on a disk that does not take it the cause stays unknown, and watching goes on."""
    path = death_file(run_dir, death.host, death.pid)
    with suppress(OSError):
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(death)))
        draft.replace(path)
