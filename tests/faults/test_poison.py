"""One prompt that ends its worker, among others that do no harm."""

import json
import math
from pathlib import Path

import pytest

import pipelines
from pipelines.verify import verify
from tests.faults.engines import Fault
from tests.faults.rig import failures, manifest, passes, passes_after_receipt, prompts, run_cli, tables, write_config

TEXTS = prompts(100)
POISON = 17


def hundred() -> list[dict[str, str]]:
    texts = [*TEXTS]
    texts[POISON] = "then poison"
    return [{"id": f"s{i}", "prompt": text} for i, text in enumerate(texts)]


@pytest.mark.slow
def test_one_of_a_hundred_is_isolated_and_retried_later(tmp_path: Path) -> None:
    """P07: 99 are done, the one is named with its cause; a later run retries only that one."""
    config, run_dir = write_config(tmp_path, hundred(), engine={"unit_rows": 100}), tmp_path / "run"
    status, out, err = run_cli(config, "--workers", "2", fault=Fault("kill", mark="poison"))
    assert status == 3
    (failure,) = failures(run_dir)
    assert (failure["stimulus_id"], failure["source_index"], failure["kind"]) == ("s17", POISON, "signal")
    assert "signal 9 (SIGKILL" in failure["detail"]
    assert "1 prompts failed" in out
    assert "is split into halves" in err
    told = manifest(run_dir)
    assert (told["status"], told["failed_samples"]) == ("partial", [failure["sample_index"]])
    unit = told["splits"][0]
    assert told["splits"] == [
        unit if n == 0 else f"{unit}-{failure['piece'][6 : 6 + n]}" for n in range(len(failure["piece"]) - 6)
    ]
    assert verify(run_dir).sound
    loaded = pipelines.load(run_dir, partial=True)
    assert len(loaded.matrix(site="after_layer", layer=0)) == 99
    assert passes_after_receipt(run_dir) == []
    # Bounded: every death was a try of a piece that held the prompt.
    deaths = sum(passes(run_dir).values()) - len(list((run_dir / ".ember/receipts").iterdir())) + 1
    assert deaths <= 4 + math.ceil(math.log2(100))

    before, counted = tables(run_dir), passes(run_dir)
    status, _, err = run_cli(config, "--workers", "2")
    assert status == 0, err
    assert "trying 1 failed prompts again" in err
    assert dict(passes(run_dir) - counted) == {failure["piece"]: 1}
    after = tables(run_dir)
    assert {path: after[path] for path in before} == before
    assert manifest(run_dir)["status"] == "complete"
    assert manifest(run_dir)["splits"] == told["splits"]  # how values came about is not forgotten
    assert not (run_dir / "failures.jsonl").exists()
    assert len(pipelines.load(run_dir).matrix(site="after_layer", layer=0)) == 100


@pytest.mark.parametrize(
    ("fault", "kind", "detail"),
    [
        (Fault("raise", mark="poison"), "exception", "ValueError: as ordered"),
        (Fault("exit", mark="poison"), "exit", "exit status 7"),
        (Fault("sleep", mark="poison", size=100), "time-out", "busy with one unit for more than 3 s"),
    ],
)
def test_causes_are_told_apart(tmp_path: Path, fault: Fault, kind: str, detail: str) -> None:
    items = [{"id": "a", "prompt": "one"}, {"id": "b", "prompt": "then poison"}, {"id": "c", "prompt": "two"}]
    config = write_config(tmp_path, items, engine={"unit_rows": 1}, run={"seconds_per_unit": 3})
    status, _, err = run_cli(config, "--workers", "1", fault=fault)
    assert status == 3, err
    (failure,) = failures(tmp_path / "run")
    assert (failure["stimulus_id"], failure["kind"], failure["tries"]) == ("b", kind, 2)
    assert detail in failure["detail"]


def test_a_worker_that_dies_once_costs_a_try_and_nothing_else(tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    tally.mkdir()
    config = write_config(tmp_path, prompts(12))
    assert run_cli(config, "--serial")[0] == 0
    wanted, told = tables(tmp_path / "run"), manifest(tmp_path / "run")
    other = write_config(tmp_path, prompts(12), "other")
    status, _, err = run_cli(other, "--workers", "2", fault=Fault("kill", times=1, tally=str(tally)))
    assert status == 0, err
    assert "failed and is tried again: the worker was ended by signal 9" in err
    assert tables(tmp_path / "other") == wanted
    assert manifest(tmp_path / "other")["semantic_hash"] == told["semantic_hash"]


def test_when_every_try_fails_the_run_stops_and_blames_no_prompt(tmp_path: Path) -> None:
    config = write_config(tmp_path, prompts(40), engine={"unit_rows": 30})
    status, _, err = run_cli(config, "--serial", fault=Fault("raise"))
    assert status == 1
    assert "10 tries in a row failed before anything was finished; the last: ValueError: as ordered" in err
    assert not (tmp_path / "run/manifest.json").exists()
    assert run_cli(config, "--serial")[0] == 0


@pytest.mark.slow
def test_memory_beyond_the_limit_ends_the_worker_with_the_cause_named(tmp_path: Path) -> None:
    items = [{"id": "a", "prompt": "one"}, {"id": "greedy", "prompt": "then poison"}, {"id": "c", "prompt": "two"}]
    run = {"memory_per_worker": "600MB", "workers": 1}
    config = write_config(tmp_path, items, engine={"unit_rows": 1}, run=run)
    status, _, err = run_cli(config, fault=Fault("allocate", mark="poison", size=900e6))
    assert status == 3, err
    (failure,) = failures(tmp_path / "run")
    assert (failure["stimulus_id"], failure["kind"]) == ("greedy", "memory")
    assert "of private memory, the limit is 600 MB a worker" in failure["detail"]
    journal = [json.loads(line) for line in (tmp_path / "run/.ember/log/journal.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in journal if line.get("kind")} == {"memory"}
