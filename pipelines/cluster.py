"""Units on the workers of `dask.distributed`: local processes, a scheduler elsewhere, or a cluster object from Python.

Dask is used for what it does well, processes on one or many machines, and kept from what would hurt here: it never
retries a unit (we do, after asking whose fault it was), never limits memory (it would count the mapped model), never
holds a result (receipts are on disk). The client keeps a small window of tasks, each a few hundred bytes.
"""

import concurrent.futures
import gc
import logging
import os
import queue
import signal
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, secede
from distributed.gc import enable_gc_diagnosis

from pipelines import worker
from pipelines.attempts import left_by
from pipelines.errors import RunError
from pipelines.executor import Outcome
from pipelines.main_guard import refuse_unguarded_script
from pipelines.schedule import Cause
from pipelines.tasks import UnitRecord, UnitTask
from pipelines.watchdog import Watchdog
from pipelines.watchdog_records import read_death

DASK_CONFIG: Final[dict[str, Any]] = {
    # Dask would count the mapped model's pages as the worker's memory. Turning off `terminate` alone hangs the run:
    # paused workers wait for memory that never gets free.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    # One death is enough to ask us; Dask's own count blames every task that the worker had been given.
    "distributed.scheduler.allowed-failures": 0,
    # A long matrix product is no sign of death.
    "distributed.scheduler.worker-ttl": None,
    # Dask sets MALLOC_TRIM_THRESHOLD_, which costs 12-30 %, and thread numbers, which the engine sets itself.
    "distributed.nanny.pre-spawn-environ": {},
    # Else a worker that happens to be dead some seconds after an earlier death is struck off, and not replaced.
    "distributed.deploy.lost-worker-timeout": "100 days",
    "distributed.worker.preload": ["pipelines.worker"],
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
WINDOW: Final = 2
"""Tasks per worker in Dask's hands: one computed, and one being written or waiting, so that no worker idles.

More would only widen what a death touches: a unit is written and the next one handed out while another is computed.
"""
STARTS: Final = 2
"""Tries at starting local workers."""
START_TIMEOUT: Final = 60.0
"""Seconds until the first worker must be there, and until a dead one must be replaced."""
DEATH_WAIT: Final = 3.0
"""Seconds to wait for the watchdog's word on how a worker ended."""


class DaskExecutor:
    """Submits tasks to a Dask cluster and turns dead workers into outcomes with a cause."""

    def __init__(self, client: Any, run_dir: Path, watchdog: Watchdog, workers: int) -> None:
        self._client = client
        self._run_dir = run_dir
        self._finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tasks: dict[str, tuple[UnitTask, Any]] = {}
        self._run = uuid.uuid4().hex[:8]
        self.workers = workers
        self._watchdog = watchdog.name
        client.register_plugin(watchdog)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def free(self) -> bool:
        """Whether the window has room."""
        return len(self._tasks) < WINDOW * self.workers

    def submit(self, task: UnitTask, avoid: str) -> None:
        """Hand a task to the cluster."""
        key = f"ember-{self._run}-{task.piece}-{task.number}"
        others = self._others(avoid)
        where = {"workers": others, "allow_other_workers": True} if others else {}
        future = self._client.submit(run_unit, task, key=key, pure=False, **where)
        self._tasks[key] = (task, future)
        future.add_done_callback(self._finished.put)

    def wait(self) -> Outcome:
        """Block until a task has an outcome; raises RunError when the cluster is gone."""
        silent_since = time.monotonic()
        while True:
            try:
                # A short wait lets Ctrl-C through at once.
                future = self._finished.get(timeout=0.5)
            except queue.Empty:
                silent_since = self._check_cluster(silent_since)
                continue
            if future.key in self._tasks:
                task, _ = self._tasks.pop(future.key)
                return self._outcome(task, future)

    def close(self) -> None:
        """Cancel what is waiting; running tasks end with their workers or, on a foreign cluster, by themselves."""
        for _, future in self._tasks.values():
            with suppress(Exception):
                future.cancel()
        self._tasks.clear()
        # On a cluster of somebody else the watch ends with the run.
        with suppress(Exception):
            self._client.unregister_worker_plugin(self._watchdog, nanny=True)

    def _others(self, avoid: str) -> list[str] | None:
        if not avoid:
            return None
        known: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        there = {avoid, *_addresses(avoid)}
        others = [address for address, told in known.items() if told.get("host") not in there]
        return others if others and len(others) < len(known) else None

    def _check_cluster(self, silent_since: float) -> float:
        if self._client.status not in ("running", "connecting"):
            raise RunError("the Dask scheduler is gone; start it and run the same command again: it goes on from here")
        if self._client.scheduler_info(n_workers=0).get("n_workers", 1):
            return time.monotonic()
        if time.monotonic() - silent_since > START_TIMEOUT:
            raise RunError(
                f"no worker has been there for {START_TIMEOUT:.0f} s; start workers and run the same command again: "
                "it goes on from here"
            )
        return silent_since

    def _outcome(self, task: UnitTask, future: Future) -> Outcome:
        if future.status == "finished":
            return Outcome(task, future.result())
        if future.status == "lost":  # done, but its worker died before the client had the record: the receipt has it
            return Outcome(task, None)
        error = future.exception() if future.status == "error" else None
        if isinstance(error, KilledWorker):
            return self._death(task)
        if error is None:
            raise RunError(
                f"unit {task.piece} was {future.status} by the Dask scheduler; "
                "see that it runs, and run the same command again: it goes on from here"
            )
        raise RunError(f"unit {task.piece} could not be run by Dask: {type(error).__name__}: {error}")

    def _death(self, task: UnitTask) -> Outcome:
        """Say why the worker that had begun `task` ended, if one had and this task may be to blame."""
        left = left_by(self._run_dir, task.prefix)
        blamed = [one for one in left if not one.beside]  # a scheduler of somebody else's may have tried again
        if not blamed:
            return Outcome(task, None, beside=bool(left))
        host, pid = blamed[-1].host, blamed[-1].pid
        death = read_death(self._run_dir, host, pid, wait=DEATH_WAIT)
        if death is None:
            told = f"worker {pid} on {host} was lost; nothing watched how"
            return Outcome(task, None, Cause("unknown", told, host, len(blamed)))
        return Outcome(task, None, Cause(death.kind, death.detail, host, len(blamed)))


@cache
def _addresses(host: str) -> frozenset[str]:
    """What the scheduler may know a host by; none where its name is not known here."""
    try:
        return frozenset(str(found[4][0]) for found in socket.getaddrinfo(host, None))
    except OSError:
        return frozenset()


def run_unit(task: UnitTask) -> UnitRecord:
    """Do a task on a worker, which may begin another one once this one is computed and only has to be written."""
    return worker.run_unit(task, secede)


class LocalWorkers:
    """Worker processes on this machine, which start while the caller does other things; closed, they are gone."""

    def __init__(self, workers: int) -> None:
        refuse_unguarded_script()
        _let_interrupts_through()
        self._opened = ExitStack()
        self._opened.enter_context(dask.config.set(DASK_CONFIG))
        self._opened.enter_context(_quiet())
        os.environ.pop("MALLOC_TRIM_THRESHOLD_", None)
        helper = self._opened.enter_context(ThreadPoolExecutor(1))
        started = helper.submit(_start, workers)
        self._opened.callback(_end, started)
        self._started = started

    def client(self) -> Any:
        """Wait until the workers are there and return a client. Raises RunError if they could not be started."""
        with _interrupts_wait() as interrupted:
            cluster = self._started.result()
        if interrupted:
            raise KeyboardInterrupt
        return self._opened.enter_context(Client(cluster))

    def close(self) -> None:
        """End the workers, which may still be starting."""
        self._opened.close()


@contextmanager
def local_cluster(workers: int) -> Iterator[Any]:
    """Start worker processes on this machine and give a client; everything is gone at the end."""
    with closing(LocalWorkers(workers)) as started:
        yield started.client()


def _let_interrupts_through() -> None:
    """Take back what Dask does at each search for garbage: an interrupt that came there would be lost."""
    enable_gc_diagnosis()  # Dask does it once in a process, and asks no more
    gc.callbacks[:] = [one for one in gc.callbacks if getattr(one, "__module__", "") != "distributed.gc"]


def _end(started: "concurrent.futures.Future[Any]") -> None:
    """Close a cluster that may still be starting: half-built it cannot be."""
    with _interrupts_wait():
        if not started.exception():
            started.result().close()


def _start(workers: int) -> Any:
    """Start the processes; once more if one of them was lost while it started."""
    for left in range(STARTS - 1, -1, -1):
        try:
            return LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                host="127.0.0.1",
                silence_logs=logging.CRITICAL,
            )
        except (OSError, RuntimeError, TimeoutError) as error:
            if not left:
                raise RunError(
                    f"workers could not be started in {STARTS} tries: {error}; something ends them as they start "
                    "(memory, a limit on processes?); `--serial` needs none"
                ) from error
    raise AssertionError("the last try returns or raises")


@contextmanager
def _interrupts_wait() -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM wait until the cluster stands: a half-built one cannot be closed. Gives what came."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    # a process that was started to ignore Ctrl-C, such as one behind `&` in a script, goes on ignoring it
    heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in heard}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def connect(scheduler: Any) -> Iterator[Any]:
    """Give a client of an address (`tcp://…`), a scheduler file, or a cluster object that somebody else owns."""
    with dask.config.set(DASK_CONFIG), _quiet():
        named = isinstance(scheduler, str)
        try:
            if named and scheduler.endswith(".json"):
                client = Client(scheduler_file=scheduler, timeout=START_TIMEOUT / 2)
            else:
                client = Client(scheduler, timeout=START_TIMEOUT / 2)
        except (OSError, TimeoutError, ValueError) as error:
            raise RunError(
                f"no Dask scheduler answers at {scheduler}: {error}; start it, or use scheduler: local"
            ) from error
        with client:
            _wait_for_workers(client, scheduler)
            # Workers that were started without our preload still leave Ctrl-C to the client.
            yield client


def worker_total(client: Any) -> int:
    """Worker processes that a connected cluster has at the moment: each runs one unit at a time."""
    return len(client.scheduler_info(n_workers=-1)["workers"])


def _wait_for_workers(client: Any, scheduler: Any) -> None:
    try:
        client.wait_for_workers(1, timeout=START_TIMEOUT)
    except TimeoutError as error:
        raise RunError(
            f"the Dask scheduler {scheduler} has no workers after {START_TIMEOUT:.0f} s; start some"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log off the terminal: what matters of it reaches the user as one message of ours."""
    loggers = [logging.getLogger(name) for name in ("distributed", "tornado.application", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="distributed")
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
