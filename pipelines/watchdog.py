"""The memory watchdog, and the record of how a worker process ended.

Dask's own limits count the file-backed pages of the mapped model as memory of the worker, so they are off. Instead a
thread beside each nanny looks ten times a second at what its worker has to itself (RssAnon + RssShmem), ends it when
that is above the limit, and writes the cause before it does. It sits in the nanny, because a worker that allocates
inside one long call runs no thread of its own. When the process has ended, the same thread writes its exit code,
which Dask only logs.
"""

import os
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from distributed.diagnostics.plugin import NannyPlugin

from pipelines.attempts import busy_seconds
from pipelines.watchdog_records import Death, write_death

INTERVAL: Final = 0.1
_HINTS: Final = {
    "SIGKILL": ", as the kernel does when memory runs out",
    "SIGBUS": ", as happens when the model file shrinks",
}


def private_bytes(pid: int) -> int | None:
    """Bytes that belong to a process alone: anonymous and shared pages, not mapped files; None if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "RssAnon" not in fields:
        return None
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))


class Watchdog(NannyPlugin):  # type: ignore[misc]
    """Watches the worker process of one nanny, whichever process that is at the time.

    `limit` is in bytes of private memory, `seconds` the time that one unit may take, None for any; `run_dir` must be
    seen from the nanny's host.
    """

    name = "ember-watchdog"

    def __init__(self, run_dir: str, limit: int, seconds: float | None = None) -> None:
        self.run_dir, self.limit, self.seconds = run_dir, limit, seconds
        self._stop: threading.Event | None = None

    def setup(self, nanny: Any) -> None:
        """Start watching."""
        self._stop = threading.Event()
        watch = _Watch(Path(self.run_dir), self.limit, self.seconds, nanny, self._stop)
        threading.Thread(target=watch.run, name="ember-watchdog", daemon=True).start()

    def teardown(self, nanny: Any) -> None:
        """Stop watching."""
        if self._stop:
            self._stop.set()

    def __getstate__(self) -> dict[str, Any]:
        return {"run_dir": self.run_dir, "limit": self.limit, "seconds": self.seconds, "_stop": None}


class _Watch:
    def __init__(self, run_dir: Path, limit: int, seconds: float | None, nanny: Any, stop: threading.Event) -> None:
        self._run_dir, self._limit, self._seconds, self._nanny, self._stop = run_dir, limit, seconds, nanny, stop
        self._ended: set[int] = set()

    def run(self) -> None:
        watched = None
        while not self._stop.wait(INTERVAL):
            process = _process_of(self._nanny)
            for known in {id(p): p for p in (watched, process) if p is not None}.values():
                self._look(known)
            watched = process or watched

    def _look(self, process: Any) -> None:
        pid, code = process.pid, process.exitcode
        if pid is None or pid in self._ended:
            return
        if code is not None:
            self._ended.add(pid)
            self._record(pid, *_named(code))
            return
        used = private_bytes(pid)
        if used is not None and used > self._limit:
            self._end(pid, "memory", f"{_mb(used)} of private memory, the limit is {_mb(self._limit)} a worker")
        elif self._seconds is not None and busy_seconds(self._run_dir, pid) > self._seconds:
            self._end(pid, "time-out", f"busy with one unit for more than {self._seconds:g} s (run.seconds_per_unit)")

    def _end(self, pid: int, kind: str, detail: str) -> None:
        self._ended.add(pid)
        self._record(pid, kind, detail)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _record(self, pid: int, kind: str, detail: str) -> None:
        write_death(self._run_dir, Death(socket.gethostname(), pid, kind, detail))


def _process_of(nanny: Any) -> Any:
    """Return the process object that a nanny holds, or None between two processes."""
    return getattr(getattr(nanny, "process", None), "process", None)


def _named(code: int) -> tuple[str, str]:
    if code >= 0:
        return "exit", f"the worker left with exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown signal"
    hint = _HINTS.get(name, "")
    return "signal", f"the worker was ended by signal {-code} ({name}{hint})"


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
