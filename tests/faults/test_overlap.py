"""A unit is written while the next one is computed: what the disk then does to which of them."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.faults.engines import Fault
from tests.faults.rig import (
    failures,
    manifest,
    passes,
    passes_after_receipt,
    prompts,
    run_cli,
    start,
    tables,
    write_config,
)
from tests.faults.test_kills import kill_tree, receipts, wait_for_receipts

ITEMS = [{"id": f"s{i}", "prompt": text} for i, text in enumerate(prompts(60))]
ONE, TWO = ("--workers", "1"), ("--workers", "2")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run_cli(write_config(folder, ITEMS), "--serial")[0] == 0
    return folder / "run"


def lines(run_dir: Path, name: str) -> list[dict[str, Any]]:
    (path,) = (run_dir / ".ember/log").glob(name)
    return [json.loads(line) for line in path.read_text().splitlines()]


def middle(run_dir: Path) -> tuple[str, str]:
    """Name of a unit in the middle of a run, and the id of a stimulus in it."""
    part = manifest(run_dir)["parts"][4]
    return Path(part["path"]).stem.removeprefix("part-"), stimulus_at(run_dir, part["sample_start"])


def stimulus_at(run_dir: Path, sample: int) -> str:
    return str(pq.read_table(run_dir / "stimuli.parquet")["id"][sample].as_py())


def tally(folder: Path) -> str:
    (folder / "tally").mkdir()
    return str(folder / "tally")


def test_the_next_unit_is_computed_while_one_is_written(tmp_path: Path, undisturbed: Path) -> None:
    fault = Fault("sleep", size=0.15, writing=True)
    assert run_cli(write_config(tmp_path, ITEMS), *ONE, fault=fault)[0] == 0
    assert tables(tmp_path / "run") == tables(undisturbed)
    order = [(line["event"], line["piece"]) for line in lines(tmp_path / "run", "worker-*.jsonl")]
    pieces = [piece for event, piece in order if event == "forward"]
    assert len(pieces) > 5
    # the next unit begins before this one has its receipt, and the one after it does not
    for this, following in itertools.pairwise(pieces):
        assert order.index(("forward", following)) < order.index(("receipt", this))
    for this, later in zip(pieces, pieces[2:], strict=False):
        assert order.index(("forward", later)) > order.index(("receipt", this))


def test_a_failure_in_writing_is_the_written_units(tmp_path: Path, undisturbed: Path) -> None:
    piece, stimulus = middle(undisturbed)
    fault = Fault("raise", stimulus, times=1, tally=tally(tmp_path), writing=True, pause=0.2)
    status, _, err = run_cli(write_config(tmp_path, ITEMS), *ONE, fault=fault)
    assert status == 0, err
    assert f"unit {piece} failed and is tried again: ValueError: as ordered" in err
    assert passes(tmp_path / "run") == passes(undisturbed) | {piece: 2}
    assert tables(tmp_path / "run") == tables(undisturbed)


def test_a_worker_that_is_killed_while_it_writes(tmp_path: Path, undisturbed: Path) -> None:
    piece, stimulus = middle(undisturbed)
    fault = Fault("kill", stimulus, times=1, tally=tally(tmp_path), writing=True, pause=0.3)
    status, _, err = run_cli(write_config(tmp_path, ITEMS), *ONE, fault=fault)
    assert status == 0, err
    again = [line for line in lines(tmp_path / "run", "journal.jsonl") if line["event"] == "retry"]
    # blamed is the unit that was computed; nobody knows better
    assert [line["cause"] for line in again if line["piece"] == piece] == [
        "the worker ended while it computed another unit and only wrote this one"
    ]
    blamed = [line["piece"] for line in again if line["kind"]]
    assert len(blamed) == 1
    assert blamed != [piece]
    assert tables(tmp_path / "run") == tables(undisturbed)
    assert manifest(tmp_path / "run") == manifest(undisturbed)
    assert passes_after_receipt(tmp_path / "run") == []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [ONE, TWO])
def test_a_prompt_whose_writing_kills_is_found_and_no_other_is_blamed(
    tmp_path: Path, undisturbed: Path, workers: tuple[str, ...]
) -> None:
    _, stimulus = middle(undisturbed)
    fault = Fault("kill", stimulus, writing=True, pause=0.1)
    status, _, err = run_cli(write_config(tmp_path, ITEMS), *workers, fault=fault)
    assert status == 3, err
    (failure,) = failures(tmp_path / "run")
    assert (failure["stimulus_id"], failure["kind"], failure["tries"]) == (stimulus, "signal", 2)


@pytest.mark.slow
def test_everything_is_killed_while_units_are_written(tmp_path: Path, undisturbed: Path) -> None:
    config, run_dir = write_config(tmp_path, ITEMS), tmp_path / "run"
    done = 0
    for wait in (0.05, 0.2, 0.35):
        process = start(config, *TWO, fault=Fault("sleep", size=0.4, writing=True))
        wait_for_receipts(run_dir, done + 1, process)
        time.sleep(wait)
        kill_tree(process)
        assert not (run_dir / "manifest.json").exists()
        done = receipts(run_dir)
    assert run_cli(config, *TWO)[0] == 0
    assert tables(run_dir) == tables(undisturbed)
    assert manifest(run_dir) == manifest(undisturbed)
    assert passes_after_receipt(run_dir) == []
