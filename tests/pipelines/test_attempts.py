"""What tries leave in staging says what their worker was doing."""

import os
import socket
import time
from pathlib import Path

import pytest

from pipelines.attempts import MARK, begun, busy_seconds, left_by

HOST, PID = socket.gethostname(), os.getpid()


def leave(run_dir: Path, prefix: str, pid: int, *, computed: bool = False, host: str = "host-a") -> None:
    folder = run_dir / f".ember/staging/{prefix}0123abcd.{pid}.{host}"
    (folder / MARK).mkdir(parents=True)
    if computed:
        (folder / "computed").touch()


def test_a_try_is_seen_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    with begun(tmp_path, "00003", "00003.0.") as attempt:
        (left,) = left_by(tmp_path, "00003.0.")
        assert (left.host, left.pid, left.beside) == (HOST, PID, False)
        assert attempt.name.startswith("00003.0.")
        assert left_by(tmp_path, "00003.1.") == []
    assert left_by(tmp_path, "00003.0.") == []
    assert list((tmp_path / ".ember/staging").iterdir()) == []


def test_a_try_that_was_only_written_is_beside_the_one_that_was_computed(tmp_path: Path) -> None:
    leave(tmp_path, "00001.0.", 7, computed=True)
    leave(tmp_path, "00002.0.", 7)
    leave(tmp_path, "00003.0.", 8, computed=True)  # by itself in its process: nothing else can have ended it
    leave(tmp_path, "00004.0.", 7, computed=True, host="host.b.example")  # another process with that number
    found = {name: left_by(tmp_path, f"{name}.0.")[0] for name in ("00001", "00002", "00003", "00004")}
    assert {name: left.beside for name, left in found.items()} == {
        "00001": True,
        "00002": False,
        "00003": False,
        "00004": False,
    }
    assert (found["00004"].host, found["00004"].pid) == ("host.b.example", 7)


def test_time_runs_from_the_beginning_of_the_oldest_try(tmp_path: Path) -> None:
    assert busy_seconds(tmp_path, PID) == 0
    with begun(tmp_path, "00000", "00000.0.") as first:
        before = time.time() - 100
        os.utime(first.folder / MARK, (before, before))
        first.computed()
        with begun(tmp_path, "00001", "00001.0."):
            assert busy_seconds(tmp_path, PID) == pytest.approx(100, abs=5)
            assert busy_seconds(tmp_path, PID + 1) == 0
    assert busy_seconds(tmp_path, PID) == 0


def test_tries_of_a_unit_stand_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    for age, pid in ((30, 5), (10, 3), (20, 9)):
        leave(tmp_path, f"00001.0.{pid}", pid)
        (folder,) = (tmp_path / ".ember/staging").glob(f"*.{pid}.host-a")
        os.utime(folder / MARK, (time.time() - age,) * 2)
    assert [left.pid for left in left_by(tmp_path, "00001.0.")] == [5, 9, 3]


def test_a_file_server_whose_clock_is_wrong_does_not_make_a_try_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Path.mkdir

    def mkdir(path: Path, *given: object, **options: object) -> None:
        really(path, *given, **options)  # type: ignore[arg-type]
        os.utime(path, (1e9, 1e9))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with begun(tmp_path, "00000", "00000.0."):
        assert busy_seconds(tmp_path, PID) < 60
