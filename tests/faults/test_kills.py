"""Runs that are killed at random moments and gone on with."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.faults.engines import Fault
from tests.faults.rig import (
    finish,
    manifest,
    passes,
    passes_after_receipt,
    prompts,
    run_cli,
    start,
    tables,
    write_config,
)

TEXTS = prompts(60)
SLOW = Fault("sleep", size=0.15)
GENERATE = {"max_tokens": 2}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run_cli(write_config(folder, TEXTS, generate=GENERATE), "--serial")[0] == 0
    return folder / "run"


def kill_tree(process: "subprocess.Popen[str]") -> None:
    """SIGKILL a run and all its workers at once."""
    children = psutil.Process(process.pid).children(recursive=True)
    for victim in (process.pid, *(child.pid for child in children)):
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate()
    psutil.wait_procs(children, timeout=10)


def worker_processes(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def receipts(run_dir: Path) -> int:
    return len(list((run_dir / ".ember/receipts").glob("*.json")))


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]", timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def wait_for_receipts(run_dir: Path, count: int, process: "subprocess.Popen[str]") -> None:
    wait_for(lambda: receipts(run_dir) >= count, process)


def check_same(run_dir: Path, undisturbed: Path) -> None:
    assert tables(run_dir) == tables(undisturbed)
    assert manifest(run_dir) == manifest(undisturbed)
    assert passes_after_receipt(run_dir) == []
    assert not list((run_dir / ".ember").glob("staging/*"))


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_the_whole_tree_is_killed_at_ten_random_moments(tmp_path: Path, undisturbed: Path) -> None:
    config, run_dir = write_config(tmp_path, TEXTS, generate=GENERATE), tmp_path / "run"
    moments = random.Random(20261129)
    done = 0
    for _ in range(10):
        process = start(config, "--workers", "2", fault=SLOW)
        # From before the first unit to between parts and receipt: wait for some progress, then a little more.
        wait_for_receipts(run_dir, done + moments.choice((0, 0, 1)), process)
        time.sleep(moments.uniform(0, 0.4))
        if process.poll() is not None:
            finish(process)
            break
        kill_tree(process)
        done = receipts(run_dir)
        for path in (p for table in ("activations", "generations") for p in (run_dir / table).glob("*")):
            assert path.suffix == ".parquet"
    assert run_cli(config, "--workers", "2")[0] == 0
    check_same(run_dir, undisturbed)


@pytest.mark.slow
def test_single_workers_are_killed_while_the_run_goes_on(tmp_path: Path, undisturbed: Path) -> None:
    config, run_dir = write_config(tmp_path, TEXTS, generate=GENERATE), tmp_path / "run"
    process = start(config, "--workers", "2", fault=SLOW)
    killed, moments = 0, random.Random(7)
    for target in (1, 3, 5):
        wait_for_receipts(run_dir, target, process)
        time.sleep(moments.uniform(0, 0.2))
        workers = worker_processes(process)
        if workers:
            moments.choice(workers).kill()
            killed += 1
    status, _, err = finish(process)
    assert status == 0, err
    assert killed == 3
    check_same(run_dir, undisturbed)


@pytest.mark.slow
def test_a_worker_killed_after_its_receipts_costs_no_unit_again(tmp_path: Path) -> None:
    """P05: finished work is on disk, not in the dead worker's memory."""
    config, run_dir = write_config(tmp_path, TEXTS), tmp_path / "run"
    process = start(config, "--workers", "1", fault=SLOW)
    wait_for_receipts(run_dir, 3, process)
    (worker,) = worker_processes(process)
    worker.kill()
    status, _, err = finish(process)
    assert status == 0, err
    assert passes_after_receipt(run_dir) == []
    assert sum(passes(run_dir).values()) <= len(passes(run_dir)) + 1


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_soon_and_says_how_to_go_on(tmp_path: Path, undisturbed: Path, sent: signal.Signals) -> None:
    config, run_dir = write_config(tmp_path, TEXTS, generate=GENERATE), tmp_path / "run"
    process = start(config, "--workers", "2", fault=SLOW)
    wait_for_receipts(run_dir, 2, process)
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)  # as a terminal does: to the workers as well
    else:
        process.send_signal(sent)
    began = time.monotonic()
    status, _, err = finish(process)
    assert time.monotonic() - began < 20
    assert status == 130, err
    assert f"go on with: ember pipeline run {config}" in err
    assert not (run_dir / "manifest.json").exists()
    assert run_cli(config, "--workers", "2")[0] == 0
    check_same(run_dir, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("after", [1.2, 2.0, 2.8])
def test_an_interrupt_while_workers_start_leaves_nothing_half_built(tmp_path: Path, after: float) -> None:
    config = write_config(tmp_path, TEXTS, generate=GENERATE)
    process = start(config, "--workers", "2", fault=SLOW)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    status, _, err = finish(process)
    assert status == 130, err
    assert "Traceback" not in err
    assert "Exception ignored" not in err


@pytest.mark.slow
def test_a_stopped_worker_that_comes_back_changes_nothing(tmp_path: Path, undisturbed: Path) -> None:
    """P06: two processes do the same unit; the first one's files stay."""
    config, run_dir = write_config(tmp_path, TEXTS, generate=GENERATE), tmp_path / "run"
    tally = tmp_path / "tally"
    tally.mkdir()
    # A serial run that stops inside its first unit, as a frozen machine would; its lock goes when it is thought dead.
    frozen = start(config, "--serial", fault=Fault("stop", times=1, tally=str(tally)))
    wait_for(lambda: bool(list(tally.iterdir())), frozen)
    time.sleep(0.3)
    (run_dir / ".ember/lock").unlink()
    assert run_cli(config, "--serial")[0] == 0
    frozen.send_signal(signal.SIGCONT)
    frozen.communicate(timeout=60)
    assert tables(run_dir) == tables(undisturbed)
