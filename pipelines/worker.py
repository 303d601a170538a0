"""What a worker does with a unit: the only place of the factory that runs the engine.

    look for the receipt -> run the unit -> put its part files in place -> commit the receipt -> return a record

The model is opened once per process, so each part of its file is mapped once however many units the process does. The
staging directory of a try is made before the engine starts and removed after the receipt: when a worker dies, what it
leaves there says what it was doing.
"""

import functools
import importlib
import json
import math
import os
import shutil
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ember.errors import EmberError, GGUFError
from ember.generate import TextStream
from ember.gguf import GGUFFile
from ember.work import CaptureWork, UnitResult
from pipelines import journal, placing, shards
from pipelines.errors import RunError
from pipelines.findings import write_findings
from pipelines.parts import PartFile
from pipelines.receipts import EXPERIMENT, NON_FINITE, Failure, Receipt, commit, holds, read
from pipelines.rows import CaptureRows
from pipelines.score_rows import score_rows
from pipelines.sources import read_rows
from pipelines.tasks import EngineRecord, EngineSettings, UnitRecord, UnitTask, deciding_numerics
from pipelines.unit_file import UnitFile, read_unit_file
from pipelines.unit_hooks import findings_of, make_experiments
from pipelines.unit_rows import attention_rows, capture_rows, generation_row


def dask_setup(_worker: Any) -> None:
    """Leave Ctrl-C to the client; called by Dask, for which this module is a preload."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def describe_engine(settings: EngineSettings, captures: Sequence[CaptureWork], *, decodes: bool) -> EngineRecord:
    """Open the model in this process and say how values will be computed.

    Opening compiles the kernels of the fast route into their cache, so that workers find them there.
    """
    model = open_engine(settings)
    return EngineRecord(model.route, model.numerics(), model.contract(captures, decodes=decodes))


@functools.lru_cache(maxsize=1)
def open_engine(settings: EngineSettings) -> Any:
    """Open the model once per process, and check that this process can do what the client promised."""
    model = _open(settings)
    if settings.stamps and stamps(model.file) != settings.stamps:
        raise GGUFError(f"{settings.model_path}: model file changed during the run")
    if settings.numerics:
        _check_numerics(json.loads(settings.numerics), deciding_numerics(model.numerics()))
    return model


def stamps(file: GGUFFile) -> tuple[tuple[int, int], ...]:
    """Size and time of change of each part of a model's file."""
    return tuple((part.size, part.mtime_ns) for part in file.parts)


_OPENED: dict[tuple[EngineSettings, str], Any] = {}
_ONE_AT_A_TIME = threading.Lock()


def _open(settings: EngineSettings) -> Any:
    key = replace(settings, route="", numerics="")
    if (key, settings.route) not in _OPENED:
        module, attribute = settings.opener.split(":")
        make = getattr(importlib.import_module(module), attribute)
        model = make(
            settings.model_path,
            route=settings.route,
            threads=settings.blas_threads,
            memory_budget=settings.memory_budget,
        )
        _OPENED.clear()
        # The client resolves `auto`; in serial runs it is also the worker, and finds the same model again.
        _OPENED[key, settings.route] = _OPENED[key, model.route] = model
    return _OPENED[key, settings.route]


def run_unit(task: UnitTask) -> UnitRecord:
    """Do one try of a piece. Never raises: what went wrong is in the record.

    A model has one set of scratch: where Dask gives a process several threads, they take turns.
    """
    with _ONE_AT_A_TIME:
        return _run_unit(task)


def _run_unit(task: UnitTask) -> UnitRecord:
    started, run_dir = time.monotonic(), Path(task.run_dir)
    found = read(run_dir, task.piece)
    if found and holds(run_dir, found):
        return UnitRecord(
            task.piece, found, seconds=time.monotonic() - started, host=socket.gethostname(), pid=os.getpid()
        )
    try:
        with _begun(run_dir, task) as attempt:
            receipt = _compute(task, run_dir, attempt)
    except (RunError, GGUFError, OSError) as error:
        return _failed(task, error, fatal=True)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        # code of an experiment may want to leave: its prompt shall, and not the process with all its work. Ctrl-C
        # itself comes to the main thread alone, where serial runs are
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return _failed(task, error, fatal=False)
    seconds = time.monotonic() - started
    return UnitRecord(task.piece, receipt, computed=True, seconds=seconds, host=socket.gethostname(), pid=os.getpid())


@contextmanager
def _begun(run_dir: Path, task: UnitTask) -> Iterator[str]:
    """Leave a mark that this try has begun, for as long as it lasts, and give the try a name of its own."""
    name = f"{task.prefix}{uuid.uuid4().hex[:8]}.{os.getpid()}.{socket.gethostname()}"
    folder = run_dir / placing.STAGING / name
    with placing.disk_errors(run_dir, f"cannot begin unit {task.piece}", 0):
        # The mark inside keeps the directory while files come and go in it.
        (folder / "mark").mkdir(parents=True)
    try:
        yield name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compute(task: UnitTask, run_dir: Path, attempt: str) -> Receipt:
    units = read_unit_file(run_dir / task.unit_file)
    model = _open_for_run(task.engine)
    model.file.check_unchanged()
    journal.note_worker(run_dir, "forward", piece=task.piece, number=task.number, start=task.start, end=task.end)
    samples = range(task.start, task.end)
    result: UnitResult = model.run_unit(
        units.work(task.start, task.end, task.guard_positions, read_rows),
        make_experiments(units, samples),
        listener=_stopper(units, len(samples), model.tokenizer),
    )
    model.file.check_unchanged()
    measured = result.guard_nll is not None and math.isfinite(result.guard_nll)
    findings, hooked = findings_of(units, samples, result)
    good = [i for i in range(len(samples)) if i not in result.failures and i not in hooked]
    parts = tuple(_write(model, task, run_dir, attempt, units, result, good))
    if units.experiments and good:
        where = {"sample_start": task.start, "sample_end": task.end}
        parts = (*parts, write_findings(run_dir, task.piece, attempt, findings, **where))
    receipt = Receipt(
        piece=task.piece,
        start=task.start,
        end=task.end,
        parts=parts,
        rows=result.rows,
        rows_computed=result.rows_computed,
        generated=sum(len(result.produced[i].token_ids) for i in good) if result.produced else 0,
        guard_nll=result.guard_nll if measured else None,
        guard_count=result.guard_count if measured else 0,
        failures=tuple(_failures(task.start, result, hooked)),
        ember=task.ember,
    )
    standing = commit(run_dir, attempt, receipt)
    journal.note_worker(run_dir, "receipt", piece=task.piece, number=task.number)
    return standing


def _failures(start: int, result: UnitResult, hooked: Mapping[int, str]) -> Iterator[Failure]:
    for i in sorted(result.failures.keys() | hooked.keys()):
        if (found := result.failures.get(i)) is not None:
            yield Failure(start + i, NON_FINITE, f"non-finite after {_place(found.layer, found.site)}")
        else:
            yield Failure(start + i, EXPERIMENT, hooked[i])


def _open_for_run(settings: EngineSettings) -> Any:
    """Open the model; whatever prevents it concerns the run, not the unit that happened to be first."""
    try:
        return open_engine(settings)
    except MemoryError:
        raise
    except EmberError as error:
        raise RunError(str(error)) from error


def _stopper(units: UnitFile, prompts: int, tokenizer: Any) -> Any:
    """What ends a continuation at a stop text; None where the config names none."""
    if not units.choosing.stop:
        return None
    streams = [TextStream(tokenizer, units.choosing.stop, units.stop_ids, None) for _ in range(prompts)]

    def listen(prompt: int, token: int, token_ids: list[int]) -> bool:
        return streams[prompt].take(prompt, token, token_ids)

    return listen


def _place(layer: int, site: str) -> str:
    return f"layer {layer} ({site})" if layer >= 0 else site


def _write(
    model: Any, task: UnitTask, run_dir: Path, attempt: str, units: UnitFile, result: UnitResult, good: list[int]
) -> list[PartFile]:
    """Write the tables of a unit whose prompts `good` (from 0) have results."""
    if not good:
        return []
    rows = _captured(model, units, range(task.start, task.end), result, good)
    where: dict[str, Any] = {"sample_start": task.start, "sample_end": task.end, "metadata": dict(task.metadata)}
    parts = []
    for write, wanted in (
        (shards.write_activations, [r for r in rows if r.site != "after_logits"]),
        (shards.write_logits, [r for r in rows if r.site == "after_logits"]),
    ):
        if wanted:
            parts.append(write(run_dir, task.piece, attempt, wanted, dtype=task.dtype, **where))
    if units.attention:
        pairs = zip(units.attention, result.attention, strict=True)
        kept = [attention_rows(units, one, range(task.start, task.end), good, found) for one, found in pairs]
        parts.append(shards.write_attention(run_dir, task.piece, attempt, kept, **where))
    if units.answers:
        scores = score_rows(units, task.start, task.end, result)
        produced: list[Any] = list(result.produced) or [None] * (task.end - task.start)
        told = [generation_row(units, task.start + i, produced[i], model.tokenizer, scores[i]) for i in good]
        parts.append(shards.write_generations(run_dir, task.piece, attempt, told, **where))
    return parts


def _captured(
    model: Any, units: UnitFile, samples: range, result: UnitResult, good: Sequence[int]
) -> list[CaptureRows]:
    lost = result.failures.keys() | result.hook_failures.keys()
    return [
        capture_rows(
            units,
            capture,
            samples,
            good,
            values,
            produced=result.produced,
            lost=lost,
            is_special=model.tokenizer.is_special,
        )
        for capture, values in zip(units.captures, result.captures, strict=True)
    ]


def _check_numerics(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    if wanted == found:
        return
    differing = [key for key in sorted({*wanted, *found}) if wanted.get(key) != found.get(key)]
    raise RunError(
        f"a worker on {socket.gethostname()} computes with other numerics than the client, so its values would differ: "
        + "; ".join(f"{key}: {found.get(key)!r}, expected {wanted.get(key)!r}" for key in differing)
        + ". Use workers with the same libraries and processors"
    )


def _failed(task: UnitTask, error: BaseException, *, fatal: bool) -> UnitRecord:
    kind = "memory" if isinstance(error, MemoryError) else "exception"
    told = str(error) if isinstance(error, EmberError) else f"{type(error).__name__}: {error}"
    return UnitRecord(task.piece, None, host=socket.gethostname(), pid=os.getpid(), kind=kind, error=told, fatal=fatal)
