import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipelines.errors import LockedError
from pipelines.lock import locked, owner_of
from pipelines.state import LOCK

HOLD = """
import sys, time
from pathlib import Path
from pipelines.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / ".ember").mkdir()
    return tmp_path


def hold(run_dir: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(run_dir)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_process_is_refused_and_told_by_whom(run_dir: Path) -> None:
    holder = hold(run_dir)
    try:
        with (
            pytest.raises(LockedError, match=rf"process {holder.pid} on \S+, since 20\d\d-") as refused,
            locked(run_dir),
        ):
            pass
        assert refused.value.exit_status == 1
        owner = owner_of(run_dir)
        assert owner is not None
        assert owner.pid == holder.pid
    finally:
        holder.kill()
        holder.communicate()


def test_a_killed_owner_leaves_no_lock(run_dir: Path) -> None:
    holder = hold(run_dir)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert (run_dir / LOCK).read_text()  # its name still stands there
    assert owner_of(run_dir) is None
    with locked(run_dir):
        owner = owner_of(run_dir)
        assert owner is not None
        assert owner.pid == os.getpid()


def test_a_process_that_has_the_number_of_a_killed_owner_is_not_taken_for_it(run_dir: Path) -> None:
    for pid in (os.getpid(), os.getppid(), 1):  # after a restart of the machine or of a container
        told = {"host": socket.gethostname(), "pid": pid, "since": "2026-01-01T00:00:00+00:00"}
        (run_dir / LOCK).write_text(json.dumps(told))
        assert owner_of(run_dir) is None
        with locked(run_dir):
            pass


def test_who_only_looks_whether_it_is_held_does_not_keep_a_run_from_it(run_dir: Path) -> None:
    (run_dir / LOCK).touch()
    with (run_dir / LOCK).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        looking = threading.Timer(0.02, lambda: fcntl.flock(file, fcntl.LOCK_UN))
        looking.start()
        with locked(run_dir):
            pass
        looking.join()


def test_the_name_goes_with_the_lock(run_dir: Path) -> None:
    with locked(run_dir):
        assert owner_of(run_dir) is not None
    assert owner_of(run_dir) is None
    with pytest.raises(KeyError), locked(run_dir):
        raise KeyError
    assert owner_of(run_dir) is None


def test_an_owner_on_another_host_is_believed(run_dir: Path) -> None:
    told = {"host": "elsewhere", "pid": 17, "since": "2026-01-01T00:00:00+00:00"}
    (run_dir / LOCK).write_text(json.dumps(told))
    with pytest.raises(LockedError, match=r"process 17 on elsewhere.*remove .*lock and run again"), locked(run_dir):
        pass
    assert json.loads((run_dir / LOCK).read_text()) == told


def test_garbage_in_the_lock_file_is_nobody(run_dir: Path) -> None:
    (run_dir / LOCK).write_bytes(b"\xff not json")
    assert owner_of(run_dir) is None
    with locked(run_dir):
        pass


def test_without_locks_of_the_file_system_the_text_decides(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with locked(run_dir):
        with pytest.raises(LockedError, match=rf"process {os.getpid()} on"), locked(run_dir):
            pass
        assert owner_of(run_dir) is not None
    with locked(run_dir):
        pass
    told = {"host": socket.gethostname(), "pid": os.getpid(), "since": "2026-01-01T00:00:00+00:00"}
    (run_dir / LOCK).write_text(json.dumps(told))  # by a process before this one that had its number
    assert owner_of(run_dir) is None
    with locked(run_dir):
        pass
