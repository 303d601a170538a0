import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.resume import make_directory
from pipelines.watchdog import Watchdog, private_bytes
from pipelines.watchdog_records import read_death

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
HOARDER = "import time; hoard = bytearray(b'x') * 150_000_000; print('up', flush=True); time.sleep(60)"
READER = """
import mmap, sys, time
file = open(sys.argv[1], "rb")
view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
total = sum(view[i] for i in range(0, len(view), mmap.PAGESIZE))
print("up", flush=True)
time.sleep(60)
"""


class Process:
    """What the watchdog sees of a worker: a process with `pid` and, once it has ended, `exitcode`."""

    def __init__(self, code: str, *arguments: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    make_directory(tmp_path)
    return tmp_path


def watched(run_dir: Path, process: Process, limit: int) -> Watchdog:
    dog = Watchdog(str(run_dir), limit)
    dog.setup(SimpleNamespace(process=SimpleNamespace(process=process)))
    return dog


def host() -> str:
    import socket

    return socket.gethostname()


def test_mapped_files_are_not_private(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(1 << 20) * 64)
    before = private_bytes(os.getpid())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert sum(view[i] for i in range(0, len(view), mmap.PAGESIZE)) > 0
        mapped = private_bytes(os.getpid())
    # pages of its own: an allocator might give memory that this process has had before
    hoard = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for place in range(0, len(hoard), mmap.PAGESIZE):
        hoard[place] = 1
    full = private_bytes(os.getpid())
    assert before is not None
    assert mapped is not None
    assert full is not None
    assert mapped - before < 8 << 20
    assert full - before > 56 << 20
    hoard.close()
    assert private_bytes(2**22 + 1) is None


def test_a_worker_over_the_limit_is_ended_with_the_cause(run_dir: Path) -> None:
    process = Process(HOARDER)
    dog = watched(run_dir, process, 100_000_000)
    try:
        death = read_death(run_dir, host(), process.pid, wait=5)
        assert death is not None
        assert death.kind == "memory"
        assert death.detail.endswith("of private memory, the limit is 100 MB a worker")
        deadline = time.monotonic() + 5
        while process.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.exitcode == -signal.SIGKILL
        time.sleep(0.3)
        # Its end by our own signal does not become the cause.
        again = read_death(run_dir, host(), process.pid)
        assert again == death
    finally:
        dog.teardown(None)
        process.end()


def test_a_mapped_model_larger_than_the_limit_is_no_reason(run_dir: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_bytes(os.urandom(1 << 20) * 200)
    process = Process(READER, str(model))
    dog = watched(run_dir, process, 100_000_000)
    try:
        time.sleep(0.5)
        assert process.exitcode is None
        assert read_death(run_dir, host(), process.pid) is None
    finally:
        dog.teardown(None)
        process.end()


@pytest.mark.parametrize(
    ("code", "kind", "detail"),
    [
        (SLEEPER, "signal", "signal 9 (SIGKILL, as the kernel does when memory runs out)"),
        ("print('up', flush=True); raise SystemExit(5)", "exit", "exit status 5"),
    ],
)
def test_how_a_worker_ended_is_recorded(run_dir: Path, code: str, kind: str, detail: str) -> None:
    process = Process(code)
    dog = watched(run_dir, process, 10**10)
    try:
        if code == SLEEPER:
            os.kill(process.pid, signal.SIGKILL)
        death = read_death(run_dir, host(), process.pid, wait=5)
        assert death is not None
        assert (death.kind, death.pid) == (kind, process.pid)
        assert detail in death.detail
    finally:
        dog.teardown(None)
        process.end()
