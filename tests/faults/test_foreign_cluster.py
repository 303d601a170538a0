"""A scheduler and workers that somebody else started, as on a cluster."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.engines import Fault
from tests.faults.rig import ROOT, failures, manifest, passes_after_receipt, prompts, run_cli, tables, write_config

POISON = Fault("kill", mark="poison")
CODE = "from distributed.cli.dask_{0} import main; main()"


def spawn(kind: str, *options: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, **POISON.environment, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", CODE.format(kind), *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.fixture
def scheduler_file(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "scheduler.json"
    running = [
        spawn("scheduler", "--scheduler-file", str(file), "--port", "0", "--host", "127.0.0.1", "--no-dashboard")
    ]
    try:
        deadline = time.monotonic() + 30
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        options = ["--nthreads", "1", "--nworkers", "2", "--memory-limit", "0", "--no-dashboard"]
        scratch = str(tmp_path / "scratch")
        running.append(spawn("worker", "--scheduler-file", str(file), *options, "--local-directory", scratch))
        yield file
    finally:
        for process in reversed(running):
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()


@pytest.mark.slow
def test_a_scheduler_file_with_a_prompt_that_kills_workers(tmp_path: Path, scheduler_file: Path) -> None:
    items = [{"id": f"s{i}", "prompt": text} for i, text in enumerate(prompts(24))]
    items[5]["prompt"] = "then poison"
    config = write_config(tmp_path, items, engine={"unit_rows": 1})
    status, _, err = run_cli(config, "--scheduler", str(scheduler_file), fault=POISON)
    assert status == 3, err
    assert "on 2 workers" in err
    (failure,) = failures(tmp_path / "run")
    # Dask hands a task on three times by itself before it tells us.
    assert (failure["stimulus_id"], failure["kind"], failure["tries"]) == ("s5", "signal", 4)
    assert passes_after_receipt(tmp_path / "run") == []
    # The prompt is retried alone, serially and without the fault; the whole equals a run in one process.
    assert run_cli(config, "--serial")[0] == 0
    alone = write_config(tmp_path, items, "alone", engine={"unit_rows": 1})
    assert run_cli(alone, "--serial")[0] == 0
    assert tables(tmp_path / "run") == tables(tmp_path / "alone")
    assert manifest(tmp_path / "run")["semantic_hash"] == manifest(tmp_path / "alone")["semantic_hash"]
