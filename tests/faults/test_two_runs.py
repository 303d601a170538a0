"""Two runs into one directory (P10)."""

import signal
import time
from pathlib import Path

from tests.faults.engines import Fault
from tests.faults.rig import finish, manifest, passes, prompts, run_cli, start, write_config
from tests.faults.test_kills import wait_for_receipts


def test_the_second_is_refused_at_once_and_told_by_whom(tmp_path: Path) -> None:
    config, run_dir = write_config(tmp_path, prompts(40)), tmp_path / "run"
    first = start(config, "--serial", fault=Fault("sleep", size=0.4))
    wait_for_receipts(run_dir, 1, first)
    status, _, err = run_cli(config, "--serial")
    assert status == 1
    assert f"is being written by process {first.pid} on " in err
    status, _, err = finish(first)
    assert status == 0, err
    assert manifest(run_dir)["status"] == "complete"
    assert set(passes(run_dir).values()) == {1}


def test_of_two_started_together_one_runs_and_the_other_does_no_harm(tmp_path: Path) -> None:
    config, run_dir = write_config(tmp_path, prompts(40)), tmp_path / "run"
    both = [start(config, "--serial", fault=Fault("sleep", size=0.1)) for _ in range(2)]
    outcomes = sorted(finish(process)[0] for process in both)
    # The loser is refused; or, starting late on a busy machine, it finds the run finished.
    assert outcomes in ([0, 1], [0, 0])
    assert manifest(run_dir)["status"] == "complete"
    assert set(passes(run_dir).values()) == {1}


def test_status_names_the_writer_and_the_next_step(tmp_path: Path) -> None:
    from pipelines.status import read_status

    config, run_dir = write_config(tmp_path, prompts(40)), tmp_path / "run"
    process = start(config, "--serial", fault=Fault("sleep", size=0.3))
    wait_for_receipts(run_dir, 2, process)
    told = read_status(run_dir)
    assert told.state == "running"
    assert told.writer is not None
    assert f"process {process.pid} on" in told.writer
    assert 0 < told.done < told.prompts == 40
    assert told.done + told.pending == 40
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(0.1)
    told = read_status(run_dir)
    assert (told.state, told.writer) == ("unfinished", None)
    assert "run the same config again" in told.next_step
    assert run_cli(config, "--serial")[0] == 0
    told = read_status(run_dir)
    assert (told.state, told.done, told.failed, told.pending) == ("complete", 40, 0, 0)
