"""Units on Dask workers: same bytes as in one process, and workers as they should be."""

import gc
import json
import os
import warnings
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import LocalCluster

from pipelines import cluster
from pipelines.running import run
from tests.faults.rig import make_config, manifest, passes, passes_after_receipt, prompts, run_cli, tables, write_config

CAPTURES = {
    "capture": [{"site": "after_layer"}, {"name": "all", "site": "after_mlp", "layers": [1], "position": "all"}]
}


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference: a run in one process."""
    folder = tmp_path_factory.mktemp("serial")
    run(make_config(folder, prompts(40), hooks=CAPTURES, generate={"max_tokens": 2}), scheduler="serial")
    return folder / "run"


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_number_of_workers_gives_the_same_bytes(serial: Path, tmp_path: Path, workers: int) -> None:
    config = write_config(tmp_path, prompts(40), hooks=CAPTURES, generate={"max_tokens": 2})
    status, out, err = run_cli(config, "--workers", str(workers), "--json")
    assert status == 0, err
    summary = json.loads(out)
    assert tables(tmp_path / "run") == tables(serial)
    assert summary["semantic_hash"] == manifest(serial)["semantic_hash"]
    assert manifest(tmp_path / "run") == manifest(serial)
    assert set(passes(tmp_path / "run").values()) == {1}
    assert len(list((tmp_path / "run/.ember/log").glob("worker-*"))) <= workers
    assert f"on {workers} workers" in err
    assert "large graph" not in err
    assert "arning" not in err


def look_at_worker() -> dict[str, Any]:
    """What a worker process is like."""
    import signal

    from pipelines import worker

    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "pid": os.getpid(),
        "maps": [line for line in maps if line.endswith(".gguf")],
        "trim": os.environ.get("MALLOC_TRIM_THRESHOLD_"),
        "sigint": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "models": len(set(map(id, worker._OPENED.values()))),
        "limits": {
            key: dask.config.get(f"distributed.worker.memory.{key}")
            for key in ("target", "spill", "pause", "terminate")
        },
    }


def test_a_worker_maps_the_model_once_however_many_units_it_does(tmp_path: Path) -> None:
    config = make_config(tmp_path, prompts(40))
    with cluster.local_cluster(2) as client:
        assert client.scheduler_info()["services"] == {} or client.scheduler_info()["services"]["dashboard"] != 8787
        summary = run(config, cluster=client.cluster)
        assert summary.parts > 5
        seen = client.run(look_at_worker)
    assert len(seen) == 2
    for worker in seen.values():
        assert len(worker["maps"]) == worker["models"] <= 1
        assert worker["trim"] is None
        assert worker["sigint"]
        assert set(worker["limits"].values()) == {False}
    assert sum(len(worker["maps"]) for worker in seen.values()) >= 1


def test_an_interrupt_is_not_lost_while_garbage_is_searched() -> None:
    """A callback of Dask's would swallow it."""
    with cluster.local_cluster(1):
        assert [one for one in gc.callbacks if "distributed" in getattr(one, "__module__", "")] == []


def test_workers_that_are_not_waited_for_are_gone_at_the_end() -> None:
    before = set(psutil.Process().children())
    workers = cluster.LocalWorkers(2)
    workers.close()
    workers.close()
    left = [child for child in set(psutil.Process().children()) - before if "spawn_main" in " ".join(child.cmdline())]
    assert left == []
    assert not dask.config.get("distributed.worker.preload", [])


def test_a_worker_leaves_without_a_last_search_for_garbage() -> None:
    from pipelines import worker

    worker.dask_teardown(None)
    try:
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_the_cluster_of_somebody_else_stays_theirs(serial: Path, tmp_path: Path) -> None:
    """A foreign cluster, without our configuration and without a nanny (P03)."""
    config = make_config(tmp_path, prompts(40), hooks=CAPTURES, generate={"max_tokens": 2})
    with (
        dask.config.set({"distributed.scheduler.http.routes": []}),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        ) as theirs,
    ):
        run(config, cluster=theirs)
        assert theirs.status.name == "running"
        assert manifest(tmp_path / "run")["numerics"]["blas_threads"] == 1
        # By its address, and with nothing left to do.
        again = run(config, scheduler=theirs.scheduler_address)
        assert again.units_computed == 0
    assert tables(tmp_path / "run") == tables(serial)


def test_threads_of_one_worker_take_turns(serial: Path, tmp_path: Path) -> None:
    """A model has one set of scratch: two units at once in one process would mix."""
    config = make_config(tmp_path, prompts(40), hooks=CAPTURES, generate={"max_tokens": 2})
    with LocalCluster(
        n_workers=1,
        threads_per_worker=4,
        processes=False,
        dashboard_address=None,
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    ) as theirs:
        run(config, cluster=theirs)
    assert tables(tmp_path / "run") == tables(serial)


def test_a_scheduler_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path, prompts(4), run={"scheduler": "tcp://127.0.0.1:9"})
    monkeypatch.setattr(cluster, "START_TIMEOUT", 2.0)
    with pytest.raises(cluster.RunError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9.*scheduler: local"):
        run(config)


def test_a_run_that_a_worker_cannot_follow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(tmp_path, prompts(4))
    monkeypatch.setattr("ember.numerics.NUMERICS_VERSION", 99)  # in this process, not in workers
    with pytest.raises(cluster.RunError, match=r"computes with other numerics.*numerics_version: \d+, expected 99"):
        run(config, workers=1)


@pytest.mark.slow
def test_many_stimuli_make_no_large_graph(tmp_path: Path) -> None:
    """P17, scaled down: tasks are small whatever the plan holds."""
    items = [f"then number {i}" for i in range(3000)]
    config = make_config(
        tmp_path, items, hooks={"capture": [{"site": "after_layer", "layers": [0]}]}, engine={"unit_rows": 4096}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(config, workers=1)
    sizes = [len(line) for line in (tmp_path / "run/.ember/log/journal.jsonl").read_text().splitlines()]
    assert max(sizes) < 2000
    assert passes_after_receipt(tmp_path / "run") == []


def test_a_task_is_small() -> None:
    import pickle

    from pipelines.tasks import EngineSettings, UnitTask

    settings = EngineSettings(
        "/models/m.gguf", "fast", 1, 10**9, ((10**9, 10**18),), json.dumps({"numerics": "x" * 1000})
    )
    task = UnitTask(
        "/runs/r",
        ".ember/plan/units-0.arrays",
        "00000",
        0,
        4096,
        0,
        settings,
        256,
        "float32",
        (("k", "v" * 64),) * 4,
        "0.1.0",
    )
    assert len(pickle.dumps(task)) < 4000
