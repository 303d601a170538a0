"""A sweep of probes from one end to the other: a verified run, problems, tasks on workers, results.

<run>/probes/results.parquet   one row for each label, split, probe, site and layer, and for each baseline
             classes.parquet   what became of each class
             weights/…npy      directions
             manifest.json     written last: what was probed, where it came from, which files hold it
             .ember/           lock, and results of matrices that are done, until the sweep is
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ember import __version__
from ember.errors import EmberError
from ember.resources import find_resources
from pipelines import placing
from pipelines.canonical import canonical_json, sha256_of
from pipelines.cluster import connect, local_cluster, worker_total
from pipelines.crew import worker_count
from pipelines.errors import ConfigError, IdentityError, RunError
from pipelines.lock import locked
from pipelines.probes.config import ProbeConfig, open_plan, split_name
from pipelines.probes.problems import (
    Problem,
    Refusal,
    Stimuli,
    check_size,
    choose_captures,
    make_problems,
    read_stimuli,
)
from pipelines.probes.results import Result, make_results
from pipelines.probes.results_table import classes_parquet, results_parquet
from pipelines.probes.summary import ProbeSummary
from pipelines.probes.tasks import (
    BASELINES,
    Arrays,
    ProbeTask,
    Source,
    finished,
    make_task,
    read_arrays,
    run_task,
    write_problems,
)
from pipelines.probes.weights import make_directions
from pipelines.reading import Run, load
from pipelines.state import STATE_DIR

VERSION: Final = 1
"""Goes up when the same plan gives other numbers."""
MANIFEST: Final = "manifest.json"
RESULTS: Final = "results.parquet"
CLASSES: Final = "classes.parquet"
WEIGHTS: Final = "weights"
OWN: Final = (RESULTS, CLASSES, WEIGHTS, MANIFEST, STATE_DIR)
FOLDER: Final = "probes"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workers:
    """Who computes; decides nothing but time."""

    workers: int | None = None
    scheduler: str | None = None
    cluster: Any = None


@dataclass(frozen=True, slots=True)
class _Sweep:
    """Everything that is settled before the first fit."""

    config: ProbeConfig
    run: Run
    untrained: Run | None
    out: Path
    stimuli: Stimuli
    problems: list[Problem]
    refusals: list[Refusal]
    sources: list[Source]

    @property
    def plan(self) -> dict[str, Any]:
        """What decides the numbers, as plain data."""
        told = self.config.model_dump(
            mode="json", by_alias=True, exclude={"name", "runs", "run", "output", "untrained"}
        )
        hashes = {"semantic_hash": self.run.manifest.semantic_hash, "version": VERSION}
        if self.untrained is not None:
            hashes["untrained_semantic_hash"] = self.untrained.manifest.semantic_hash
        return told | hashes

    @property
    def plan_sha256(self) -> str:
        """The hash that stands for the plan and the run."""
        return sha256_of(self.plan)

    @property
    def folder(self) -> Path:
        """Where tasks put their results."""
        return self.out / STATE_DIR / self.plan_sha256[:16]

    def _home(self, source: Source) -> Path:
        other = source.features == "untrained" and self.untrained is not None
        return self.untrained.directory if other and self.untrained else self.run.directory

    @property
    def tasks(self) -> list[ProbeTask]:
        """One task for each matrix."""
        config = self.config
        return [
            make_task(self._home(source), self.folder, source, config.probes, config.strengths)
            for source in self.sources
        ]


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
    sweep = _settle(config, directory)
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


def _settle(config: ProbeConfig, directory: Path) -> _Sweep:
    run = load(directory, verify=True, partial=config.partial)
    captures = choose_captures(config, run)
    stimuli = read_stimuli(config, run, [capture for capture, _ in captures])
    for capture, _ in captures:
        check_size(capture.width, len(stimuli.samples))
    problems, refusals = make_problems(config, stimuli)
    states = [
        Source("states", capture.name, capture.site, layer, capture.position, capture.width)
        for capture, layers in captures
        for layer in layers
    ]
    untrained = _open_untrained(config, run)
    peers = [replace(source, features="untrained") for source in states] if untrained else []
    sources = [*(Source(name) for name in BASELINES), *states, *peers]
    return _Sweep(config, run, untrained, _out(config, directory), stimuli, problems, refusals, sources)


def _open_untrained(config: ProbeConfig, run: Run) -> Run | None:
    """Open the run of the untrained copy; raises ConfigError unless it is of the same stimuli, tokens and captures."""
    if config.untrained is None:
        return None
    other = load(config.untrained, verify=True)
    mine, theirs = run.manifest, other.manifest
    different = [
        what
        for what, same in (
            ("stimuli", mine.inputs.stimuli_sha256 == theirs.inputs.stimuli_sha256),
            ("order of stimuli", mine.inputs.sample_order_sha256 == theirs.inputs.sample_order_sha256),
            ("tokenizer", mine.inputs.tokenizer_sha256 == theirs.inputs.tokenizer_sha256),
            ("captures", mine.origin.captures == theirs.origin.captures),
        )
        if not same
    ]
    if different:
        raise ConfigError(
            f"untrained: {other.directory} has other {', '.join(different)} than {run.directory}; run the same config "
            "on the copy that `ember untrained` writes"
        )
    if mine.inputs.model_sha256 == theirs.inputs.model_sha256:
        raise ConfigError(f"untrained: {other.directory} is a run of the same model; expected its untrained copy")
    return other


def _out(config: ProbeConfig, directory: Path) -> Path:
    if config.output is None:
        return directory / FOLDER
    return config.output.path / directory.resolve().name if len(config.runs) > 1 else config.output.path


def _standing(sweep: _Sweep) -> dict[str, Any] | None:
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


def read_manifest(out: Path) -> dict[str, Any]:
    """Read the manifest of a finished sweep; raises RunError for one that is none."""
    path = out / MANIFEST
    try:
        found = json.loads(path.read_bytes())
        assert isinstance(found["files"], list), "a manifest lists files"
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise RunError(f"{path} is no manifest of a sweep ({error}); remove the folder and probe again") from error
    manifest: dict[str, Any] = found
    return manifest


def damaged(out: Path, manifest: dict[str, Any]) -> list[str]:
    """Files of a sweep that are absent or not as its manifest says."""
    return [
        one["path"]
        for one in manifest["files"]
        if not (out / one["path"]).is_file() or placing.sha256_file(out / one["path"]) != one["sha256"]
    ]


def _compute(sweep: _Sweep, tasks: Sequence[ProbeTask], crew: Workers, say: Say) -> None:
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


def _worker_count(sweep: _Sweep, crew: Workers, tasks: int) -> int:
    asked = crew.workers
    if asked is None and sweep.config.run.workers != "auto":
        asked = int(sweep.config.run.workers)
    width = max(source.width for source in sweep.sources)
    need = memory_need(len(sweep.stimuli.samples), width)
    return worker_count(asked, find_resources(), blas_threads=1, units=tasks, memory_per_worker=need)[0]


def memory_need(rows: int, width: int) -> int:
    """Bytes that a worker takes, about: features twice, their Gram matrix and its axes, and Python."""
    side = min(rows, width)
    return 12 * rows * width + 48 * side * side + (300 << 20)


def _conclude(sweep: _Sweep) -> dict[str, Any]:
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
    manifest = _manifest(sweep, results, records, [one.record for one in directions])
    _put(sweep.out, MANIFEST, (canonical_json(manifest, indent=1) + "\n").encode())
    return manifest


def _manifest(
    sweep: _Sweep, results: Sequence[Result], files: Sequence[dict[str, Any]], weights: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    run = sweep.run.manifest
    return {
        "schema_version": "ember.probe-results/v1",
        "name": sweep.config.name,
        "plan": sweep.plan,
        "plan_sha256": sweep.plan_sha256,
        "run": {
            "name": run.origin.name,
            "semantic_hash": run.semantic_hash,
            "input_hash": run.input_hash,
            "samples": run.samples,
            "failed_samples": len(run.failed_samples),
        },
        "stimuli": len(sweep.stimuli.samples),
        "problems": [_told(one) for one in sweep.problems],
        "refusals": [{"label": one.label, "split": one.split, "reason": one.reason} for one in sweep.refusals],
        "highlights": _highlights(results),
        "untrained_baseline": _untrained(sweep),
        "versions": {"ember": __version__, "numpy": np.__version__, "probes": VERSION},
        "files": list(files),
        "weights": list(weights),
    }


def _untrained(sweep: _Sweep) -> str:
    if sweep.untrained is None:
        return "not measured: no run of an untrained copy was given"
    manifest = sweep.untrained.manifest
    marked = "ember.untrained.seed" in manifest.origin.model.get("unread_keys", ())
    said = "a copy with shuffled weights" if marked else "a model that does not say that it is untrained"
    return f"measured: {manifest.origin.name}, {said}, semantic hash {manifest.semantic_hash}"


def _told(problem: Problem) -> dict[str, Any]:
    return {
        "label": problem.label,
        "split": split_name(problem.split),
        "rows": len(problem.task.rows),
        "classes": list(problem.classes),
        "test_sets": len(problem.task.folds.keys),
        "revealed": problem.revealed,
    }


def _highlights(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The best layer of each label, split, probe and capture."""
    best: dict[tuple[str, ...], Result] = {}
    for one in results:
        key = (one.label, one.split, one.source.capture, one.source.site, one.probe)
        if one.features == "states" and (key not in best or one.accuracy.value > best[key].accuracy.value):
            best[key] = one
    return [
        {
            "label": one.label,
            "split": one.split,
            "probe": one.probe,
            "capture": one.source.capture,
            "site": one.source.site,
            "layer": one.source.layer,
            "accuracy": [one.accuracy.value, one.accuracy.low, one.accuracy.high],
            "controls": {
                "random_labels": one.control_accuracy,
                "majority": one.majority_accuracy,
                "characters": one.characters_accuracy,
                "tokens": one.tokens_accuracy,
                **({} if math.isnan(one.untrained_accuracy) else {"untrained": one.untrained_accuracy}),
            },
            "margin": [one.margin.value, one.margin.low, one.margin.high],
            "above_controls": one.above_controls,
        }
        for one in best.values()
    ]


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
