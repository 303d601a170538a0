"""A sweep of probes from one end to the other: a verified run, problems, tasks on workers, results.

<run>/probes/results.parquet   one row for each label, split, probe, site and layer, and for each baseline
             classes.parquet   what became of each class
             weights/…npy      directions
             manifest.json     written last: what was probed, where it came from, which files hold it
             .ember/           lock, and results of matrices that are done, until the sweep is
"""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ember import __version__
from ember.errors import EmberError
from ember.resources import find_resources
from pipelines import placing
from pipelines.canonical import canonical_json
from pipelines.cluster import connect, local_cluster, worker_total
from pipelines.crew import worker_count
from pipelines.errors import IdentityError, RunError
from pipelines.lock import locked
from pipelines.probes.config import ProbeConfig, open_plan, split_name
from pipelines.probes.record import MANIFEST, damaged, make_manifest, read_manifest
from pipelines.probes.results import make_results
from pipelines.probes.results_table import classes_parquet, results_parquet
from pipelines.probes.settle import Sweep, settle
from pipelines.probes.summary import ProbeSummary
from pipelines.probes.tasks import (
    Arrays,
    ProbeTask,
    Source,
    finished,
    read_arrays,
    run_task,
    write_problems,
)
from pipelines.probes.texts import most
from pipelines.probes.weights import make_directions
from pipelines.state import STATE_DIR

RESULTS: Final = "results.parquet"
CLASSES: Final = "classes.parquet"
WEIGHTS: Final = "weights"
OWN: Final = (RESULTS, CLASSES, WEIGHTS, MANIFEST, STATE_DIR)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workers:
    """Who computes; decides nothing but time."""

    workers: int | None = None
    scheduler: str | None = None
    cluster: Any = None


def probe(
    plan: ProbeConfig | str | Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    cluster: Any = None,
    say: Say | None = None,
) -> list[ProbeSummary]:
    """Probe the runs of a plan, or one run with the plain plan; returns what came out, run by run.

    Sweeps that are finished are left as they are, others go on where they stopped. `workers` and `scheduler` override
    the plan; `cluster` is a Dask cluster of somebody else. Raises ConfigError for a plan that the run does not fit,
    RunError and its kin for runs that are unfinished or damaged, IdentityError where the folder holds another sweep.
    """
    config = plan if isinstance(plan, ProbeConfig) else open_plan(plan)
    crew = Workers(workers, scheduler, cluster)
    return [_probe_run(config, Path(directory), crew, say or _silent) for directory in config.runs]


def _silent(_line: str) -> None:
    return None


def _probe_run(config: ProbeConfig, directory: Path, crew: Workers, say: Say) -> ProbeSummary:
    sweep = settle(config, directory)
    standing = _standing(sweep)
    if standing is not None:
        return ProbeSummary(sweep.out, standing, computed=False)
    with placing.disk_errors(sweep.out, "cannot make the folder of the sweep", 0):
        sweep.folder.mkdir(parents=True, exist_ok=True)
    with locked(sweep.out):
        write_problems(sweep.folder, sweep.problems, sweep.stimuli)
        open_tasks = [task for task in sweep.tasks if not finished(task.result)]
        say(f"{len(sweep.problems)} problems on {len(sweep.sources)} matrices, {len(open_tasks)} to do")
        _compute(sweep, open_tasks, crew, say)
        manifest = _conclude(sweep)
        shutil.rmtree(sweep.folder, ignore_errors=True)
    return ProbeSummary(sweep.out, manifest, computed=True)


def _standing(sweep: Sweep) -> dict[str, Any] | None:
    """The manifest of this very sweep if it is finished; raises IdentityError if the folder holds anything else."""
    out = sweep.out
    if out.exists() and not out.is_dir():
        raise IdentityError(f"{out} is a file; choose another folder with --out or output.dir")
    foreign = sorted(path.name for path in out.iterdir() if path.name not in OWN) if out.is_dir() else []
    if foreign:
        raise IdentityError(f"{out} holds what no sweep writes ({foreign[0]}); choose another folder with --out")
    if not (out / MANIFEST).is_file():
        return None
    manifest = read_manifest(out)
    if manifest.get("plan_sha256") != sweep.plan_sha256:
        raise IdentityError(
            f"{out} holds the results of another plan or run; give this one a folder of its own with --out or "
            "output.dir, or remove that one"
        )
    return manifest if not damaged(out, manifest) else None


def _compute(sweep: Sweep, tasks: Sequence[ProbeTask], crew: Workers, say: Say) -> None:
    scheduler = crew.scheduler or sweep.config.run.scheduler
    if not tasks:
        return
    if scheduler == "serial" and crew.cluster is None:
        for done, task in enumerate(tasks, start=1):
            say(f"{run_task(task)} is done, {done} of {len(tasks)}")
        return
    with ExitStack() as stack:
        foreign = crew.cluster if crew.cluster is not None else None if scheduler == "local" else scheduler
        count = _worker_count(sweep, crew, len(tasks))
        client = stack.enter_context(local_cluster(count) if foreign is None else connect(foreign))
        if foreign is not None:
            say(f"{worker_total(client)} workers")
        # the run again in the key: results of an earlier client would be another folder's
        futures = [
            client.submit(run_task, task, key=f"probe-{sweep.folder}-{task.source.name}", pure=False) for task in tasks
        ]
        for done, (task, future) in enumerate(zip(tasks, futures, strict=True), start=1):
            _await(task, future)
            say(f"{task.source.name} is done, {done} of {len(tasks)}")


def _await(task: ProbeTask, future: Any) -> None:
    try:
        future.result()
    except EmberError:
        raise
    except Exception as error:
        raise RunError(
            f"{task.source.name} could not be probed: {type(error).__name__}: {error}; what is done is kept, run the "
            "same command again (with fewer workers if memory was short)"
        ) from error


def _worker_count(sweep: Sweep, crew: Workers, tasks: int) -> int:
    asked = crew.workers
    if asked is None and sweep.config.run.workers != "auto":
        asked = int(sweep.config.run.workers)
    rows = len(sweep.stimuli.samples)
    need = memory_need(rows, max(most(rows), *(source.width for source in sweep.sources)))
    return worker_count(asked, find_resources(), blas_threads=1, units=tasks, memory_per_worker=need)[0]


def memory_need(rows: int, width: int) -> int:
    """Bytes that a worker takes, about: features twice, their Gram matrix and its axes, and Python."""
    side = min(rows, width)
    return 12 * rows * width + 48 * side * side + (300 << 20)


def _conclude(sweep: Sweep) -> dict[str, Any]:
    found: dict[Source, Arrays] = {task.source: read_arrays(task.result) for task in sweep.tasks}
    results = [
        result
        for place, problem in enumerate(sweep.problems)
        for result in make_results(sweep.config, problem, place, found)
    ]
    directions = list(make_directions(sweep.problems, found))
    footer = {
        "ember.plan_sha256": sweep.plan_sha256,
        "ember.semantic_hash": sweep.run.manifest.semantic_hash,
        "ember.version": __version__,
    }
    names = {(one.label, split_name(one.split)): one.classes for one in sweep.problems}
    files = {
        RESULTS: results_parquet(results, footer),
        CLASSES: classes_parquet(results, names, footer),
        **{one.path: one.data for one in directions},
    }
    shutil.rmtree(sweep.out / WEIGHTS, ignore_errors=True)
    records = [_put(sweep.out, name, data) for name, data in files.items()]
    manifest = make_manifest(sweep, found, results, records, [one.record for one in directions])
    _put(sweep.out, MANIFEST, (canonical_json(manifest, indent=1) + "\n").encode())
    return manifest


def _put(out: Path, name: str, data: bytes) -> dict[str, Any]:
    path = out / name
    with (
        placing.disk_errors(out, f"cannot write {name}", len(data)),
        placing.staged(out, f"probes-{os.getpid()}", path.name) as staged,
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(data)
        placing.sync_file(staged)
        staged.replace(path)
        placing.sync_folder(path.parent)
    return {"path": name, "bytes": len(data), "sha256": placing.sha256_file(path)}
