"""One session of a run: from entering the directory to the manifest, or to whatever stops it."""

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ember import __version__
from ember.errors import EmberError
from ember.work import CaptureWork
from pipelines import journal, placing, receipts, worker
from pipelines.canonical import canonical_json
from pipelines.crew import Crew, plan_crew
from pipelines.drive import GATE, Drive
from pipelines.errors import RunError, VerifyError
from pipelines.estimates import check_disk, table_bytes
from pipelines.executor import Executor
from pipelines.finish import Timing, add_timing, write_outcome
from pipelines.identity import RunIdentity, enter, make_identity
from pipelines.manifest import MANIFEST, Manifest, read_manifest
from pipelines.pieces import Piece, open_pieces
from pipelines.plan import Plan
from pipelines.progress import Reporter
from pipelines.receipts import Receipt
from pipelines.resume import Standing, outermost, sweep, take_stock
from pipelines.rows import LABEL_PREFIX
from pipelines.schedule import Attempt, Schedule
from pipelines.standing_files import write_standing_files
from pipelines.summary import Summary, make_summary
from pipelines.tasks import ENGINE, EngineRecord, EngineSettings, UnitTask

if TYPE_CHECKING:
    from pipelines.cluster import LocalWorkers


@dataclass(frozen=True, slots=True)
class Options:
    """How a session is run; nothing here changes a value."""

    workers: int | None = None
    """Overrides `run.workers` of the config."""
    scheduler: str = "local"
    """`local`, `serial`, an address or a scheduler file."""
    cluster: Any = None
    """A Dask cluster object that somebody else owns."""
    opener: str = ENGINE
    """What opens the model; another one only in tests of the factory."""

    @property
    def foreign(self) -> bool:
        """Whether workers are not ours to start."""
        return self.cluster is not None or self.scheduler not in ("local", "serial")


@dataclass(frozen=True, slots=True)
class Job:
    """A run whose directory has been entered."""

    run_dir: Path
    plan: Plan
    identity: RunIdentity
    engine: EngineRecord
    settings: EngineSettings
    standing: Standing
    pieces: tuple[Piece, ...]
    """Pieces still to be run."""

    @property
    def footer(self) -> dict[str, str]:
        """Key-value pairs of every part file; nothing that differs between sessions."""
        inputs = self.identity.inputs
        return {
            "ember.hooks_sha256": inputs.hooks_sha256,
            "ember.input_hash": inputs.input_hash,
            "ember.model_sha256": inputs.model_sha256,
            "ember.plan_sha256": inputs.plan_sha256,
            "ember.tokenizer_sha256": inputs.tokenizer_sha256,
            "ember.version": __version__,
        }

    @property
    def samples_to_run(self) -> Iterator[int]:
        """Indices of the samples of all open pieces."""
        return (i for piece in self.pieces for i in range(piece.start, piece.end))

    def task(self, unit_file: str, attempt: Attempt) -> UnitTask:
        """Make the task of a try."""
        piece, config = attempt.piece, self.plan.config
        return UnitTask(
            run_dir=str(self.run_dir.absolute()),
            unit_file=unit_file,
            piece=piece.name,
            start=piece.start,
            end=piece.end,
            number=attempt.number,
            engine=self.settings,
            guard_positions=config.guard.positions if piece.unit == GATE else 0,
            dtype=config.output.dtype,
            metadata=tuple(self.footer.items()),
            ember=__version__,
            alone=attempt.alone,
        )


class Session:
    """Runs a plan in a directory that this process has locked."""

    def __init__(self, run_dir: Path, options: Options, reporter: Reporter) -> None:
        self._run_dir, self._options, self._reporter = run_dir, options, reporter
        self._started, self._clock = datetime.now(UTC), time.monotonic()

    def run(self, plan: Plan) -> Summary:
        """Enter the directory, run what is open, write what a finished run has."""
        crew = plan_crew(plan, len(plan.units), self._options.workers, foreign=self._options.foreign)
        if self._options.foreign or self._options.scheduler == "serial" or receipts.names(self._run_dir):
            return self._run(self._enter(plan, crew), crew)
        # nothing is done yet, so all workers will be needed: they start while this process opens the model
        from pipelines import cluster

        with closing(cluster.LocalWorkers(min(crew.workers, len(plan.units)))) as workers:
            return self._run(self._enter(plan, crew), crew, workers)

    def _run(self, job: Job, crew: Crew, workers: "LocalWorkers | None" = None) -> Summary:
        manifest = self._finished_before(job)
        if manifest is not None:
            return self._summary(job, manifest, job.standing.kept, computed=0, speed=0.0)
        self._prepare(job)
        unit_file, stimuli = write_standing_files(self._run_dir, job.plan, job.footer)
        schedule = Schedule(job.pieces, gate_unit=GATE)
        drive = Drive(self._run_dir, job.plan, job.standing.kept, schedule, self._reporter.step)
        with self._timed(job, crew, drive):
            self._drive(job, crew, drive, unit_file, workers)
            if not self._options.foreign:
                # What dead workers left; workers of a foreign cluster may still be writing.
                placing.clear_staging(self._run_dir)
            job.plan.source.file.check_unchanged()
            manifest = write_outcome(
                self._run_dir, job.plan, job.identity, job.engine, stimuli, outermost(drive.finished)
            )
        return self._summary(job, manifest, drive.finished, computed=drive.computed, speed=_speed(drive, job.standing))

    def _summary(
        self, job: Job, manifest: Manifest, done: Sequence[Receipt], *, computed: int, speed: float
    ) -> Summary:
        labels = job.plan.samples[0].stimulus.labels
        column = next((f"{LABEL_PREFIX}{name}" for name in labels), "id")
        return make_summary(
            self._run_dir, manifest, done, column, computed=computed, seconds=self._seconds, speed=speed
        )

    @property
    def _seconds(self) -> float:
        return round(time.monotonic() - self._clock, 3)

    def _enter(self, plan: Plan, crew: Crew) -> Job:
        """Resolve what is `auto`, make sure that the directory is this run's, and see what is left to do."""
        file = plan.source.file
        asked = EngineSettings(
            model_path=str(plan.source.path.absolute()),
            route=plan.config.engine.route,
            blas_threads=plan.config.engine.blas_threads,
            memory_budget=crew.weight_budget,
            stamps=worker.stamps(file),
            opener=self._options.opener,
        )
        captures = [CaptureWork(c.site, c.layers, ()) for c in plan.captures]
        engine = worker.describe_engine(asked, captures, decodes=plan.max_tokens > 0)
        route: Any = engine.route
        plan = replace(plan, config=plan.config.with_engine(route=route, unit_rows=plan.unit_rows))
        identity = make_identity(plan, engine, __version__)
        enter(self._run_dir, identity)
        sweep(self._run_dir)
        standing = take_stock(self._run_dir, plan.pieces)
        settings = replace(asked, route=engine.route, numerics=canonical_json(engine.deciding))
        pieces = tuple(open_pieces(plan.pieces, [receipt.piece for receipt in standing.kept]))
        return Job(self._run_dir, plan, identity, engine, settings, standing, pieces)

    def _finished_before(self, job: Job) -> Manifest | None:
        if job.pieces or not (self._run_dir / MANIFEST).exists():
            return None
        try:
            found = read_manifest(self._run_dir)
        except VerifyError:
            return None  # damaged: it is written again from the receipts
        return found if found.input_hash == job.identity.inputs.input_hash else None

    def _prepare(self, job: Job) -> None:
        (self._run_dir / MANIFEST).unlink(missing_ok=True)
        standing = job.standing
        if standing.kept:
            self._reporter.say(f"going on: {len(standing.kept)} units are finished, {len(job.pieces)} are open")
        if standing.retried:
            self._reporter.say(f"trying {len(standing.retried)} failed prompts again")
        if standing.damaged:
            self._reporter.say(f"{len(standing.damaged)} finished units were damaged and are done again")
        share = sum(1 for _ in job.samples_to_run) / len(job.plan.samples)
        check_disk(self._run_dir, int(share * sum(table_bytes(job.plan).values())))
        journal.note(self._run_dir, "session", pid=os.getpid(), open=len(job.pieces), finished=len(standing.kept))

    def _drive(self, job: Job, crew: Crew, drive: Drive, unit_file: str, workers: "LocalWorkers | None") -> None:
        drive.check_guard()
        if not job.pieces:
            return
        rows = sum(len(job.plan.samples[i].tokens) for i in job.samples_to_run)
        with self._executor(crew, len(job.pieces), workers) as executor:
            self._say_begin(job, crew, executor)
            self._reporter.begin(len(job.pieces) + len(job.standing.kept), len(job.standing.kept), rows)
            drive.run(executor, lambda attempt: job.task(unit_file, attempt))

    def _say_begin(self, job: Job, crew: Crew, executor: Executor) -> None:
        plan = job.plan
        where = "this process" if self._options.scheduler == "serial" else f"{executor.workers} workers"
        self._reporter.say(
            f"{plan.config.name}: {len(plan.samples)} prompts, {plan.rows:,} token rows "
            f"({plan.rows_shared:,} after sharing), {len(plan.units)} units on {where}"
        )

    @contextmanager
    def _executor(self, crew: Crew, units: int, workers: "LocalWorkers | None") -> Iterator[Executor]:
        if self._options.scheduler == "serial" and self._options.cluster is None:
            from pipelines.serial import SerialExecutor

            with SerialExecutor() as serial:
                yield serial
            return
        from pipelines import cluster
        from pipelines.watchdog import Watchdog

        if self._options.foreign:
            start = cluster.connect(self._options.cluster or self._options.scheduler)
        elif workers is not None:
            start = _ready(workers)
        else:
            start = cluster.local_cluster(min(crew.workers, units))
        with start as client:
            run_dir, count = self._run_dir.absolute(), cluster.worker_total(client)
            watchdog = Watchdog(str(run_dir), crew.limit, crew.seconds_per_unit)
            with cluster.DaskExecutor(client, run_dir, watchdog, count) as executor:
                yield executor

    @contextmanager
    def _timed(self, job: Job, crew: Crew, drive: Drive) -> Iterator[None]:
        """Record the session's times, whatever its outcome."""
        outcome = "finished"
        try:
            yield
        except BaseException as error:
            if isinstance(error, EmberError):
                journal.note(self._run_dir, "stopped", kind=type(error).__name__, cause=str(error))
            outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else f"stopped: {error}"
            raise
        finally:
            timing = Timing(
                started=self._started.isoformat(timespec="seconds"),
                seconds=self._seconds,
                seconds_of_units=round(drive.seconds, 3),
                host=socket.gethostname(),
                pid=os.getpid(),
                command=tuple(sys.argv),
                scheduler="cluster" if self._options.cluster is not None else self._options.scheduler,
                workers=crew.workers,
                units=drive.computed,
                tokens_per_second=_speed(drive, job.standing),
                outcome=outcome,
            )
            # Times are no part of the run: a disk that does not take them has been, or will be, reported otherwise.
            with suppress(RunError):
                add_timing(self._run_dir, timing)


@contextmanager
def _ready(workers: "LocalWorkers") -> Iterator[Any]:
    """Give a client of workers that were started before; they are gone at the end."""
    with closing(workers):
        yield workers.client()


def _speed(drive: Drive, standing: Standing) -> float:
    """Tokens per second while units ran in this session: prompt rows before sharing, and new tokens."""
    known = {receipt.piece for receipt in standing.kept}
    tokens = sum(r.rows + r.generated for r in drive.finished if r.piece not in known and r.rows_computed)
    return round(tokens / drive.seconds, 1) if drive.seconds else 0.0
