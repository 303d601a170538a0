"""What a worker does with a unit: the only place of the factory that runs the engine.

    look for the receipt -> run the unit -> put its part files in place -> commit the receipt -> return a record

The model is opened once per process, so each part of its file is mapped once however many units the process does. While
a unit is put in place the next one is run (`pipelines.turns`).
"""

import functools
import gc
import importlib
import json
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ember.errors import EmberError, GGUFError
from ember.generate import TextStream
from ember.gguf import GGUFFile
from ember.work import CaptureWork, UnitResult
from pipelines import journal, shards
from pipelines.attempts import begun
from pipelines.errors import RunError
from pipelines.findings import Finding, write_findings
from pipelines.parts import PartFile
from pipelines.receipts import EXPERIMENT, NON_FINITE, Failure, Receipt, commit, holds, read
from pipelines.rows import CaptureRows
from pipelines.score_rows import score_rows
from pipelines.sources import read_rows
from pipelines.tasks import EngineRecord, EngineSettings, UnitRecord, UnitTask, deciding_numerics
from pipelines.turns import Turn
from pipelines.unit_file import UnitFile, read_unit_file
from pipelines.unit_hooks import findings_of, make_experiments
from pipelines.unit_rows import attention_rows, capture_rows, generation_row


def dask_setup(_worker: Any) -> None:
    """Leave Ctrl-C to the client, and get ready; called by Dask, for which this module is a preload."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_import_engine, name="ember-imports", daemon=True).start()


def _import_engine() -> None:
    """Import what the first unit will need. Kernels are not loaded: the client may still be compiling them."""
    with suppress(ImportError):
        importlib.import_module("ember.model")


def dask_teardown(_worker: Any) -> None:
    """End soon: the last search for garbage would go through all libraries; called by Dask like `dask_setup`."""
    gc.freeze()


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


def run_unit(task: UnitTask, step_aside: Callable[[], None] | None = None) -> UnitRecord:
    """Do one try of a piece. Never raises: what went wrong is in the record.

    `step_aside` is called once the piece is computed and has only to be written, where another one may then be begun in
    this process, in another thread. See `pipelines.turns.Turn`.
    """
    with Turn(None if task.alone else step_aside) as turn:
        return _run_unit(task, turn)


def _run_unit(task: UnitTask, turn: Turn) -> UnitRecord:
    started, run_dir = time.monotonic(), Path(task.run_dir)
    found = read(run_dir, task.piece)
    if found and holds(run_dir, found):
        return UnitRecord(
            task.piece, found, seconds=time.monotonic() - started, host=socket.gethostname(), pid=os.getpid()
        )
    try:
        with begun(run_dir, task.piece, task.prefix) as attempt:
            computed = _compute(task, run_dir)
            turn.hand_on(attempt.computed)
            receipt = _keep(task, run_dir, attempt.name, computed)
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


@dataclass(frozen=True, slots=True)
class _Computed:
    """What is kept of a unit until it is written: nothing here is the engine's to use again."""

    model: Any
    units: UnitFile
    samples: range
    result: UnitResult
    findings: list[Finding]
    hooked: dict[int, str]
    """Prompts (from 0) whose experiments failed, and why."""

    @property
    def good(self) -> list[int]:
        """Prompts (from 0) that have results."""
        return [i for i in range(len(self.samples)) if i not in self.result.failures and i not in self.hooked]


def _compute(task: UnitTask, run_dir: Path) -> _Computed:
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
    findings, hooked = findings_of(units, samples, result)
    return _Computed(model, units, samples, result, findings, hooked)


def _keep(task: UnitTask, run_dir: Path, attempt: str, computed: _Computed) -> Receipt:
    """Put the unit's part files in place and then its receipt; returns the receipt that stands."""
    result, good = computed.result, computed.good
    parts = tuple(_write(task, run_dir, attempt, computed))
    if computed.units.experiments and good:
        where = {"sample_start": task.start, "sample_end": task.end}
        parts = (*parts, write_findings(run_dir, task.piece, attempt, computed.findings, **where))
    measured = result.guard_nll is not None and math.isfinite(result.guard_nll)
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
        failures=tuple(_failures(task.start, result, computed.hooked)),
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


def _write(task: UnitTask, run_dir: Path, attempt: str, computed: _Computed) -> list[PartFile]:
    """Write the tables of a unit, with rows for its prompts that have results."""
    units, samples, result, good = computed.units, computed.samples, computed.result, computed.good
    if not good:
        return []
    rows = _captured(computed)
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
        kept = [attention_rows(units, one, samples, good, found) for one, found in pairs]
        parts.append(shards.write_attention(run_dir, task.piece, attempt, kept, **where))
    if units.answers:
        scores = score_rows(units, task.start, task.end, result)
        produced: list[Any] = list(result.produced) or [None] * len(samples)
        tokenizer = computed.model.tokenizer
        told = [generation_row(units, samples[i], produced[i], tokenizer, scores[i]) for i in good]
        parts.append(shards.write_generations(run_dir, task.piece, attempt, told, **where))
    return parts


def _captured(computed: _Computed) -> list[CaptureRows]:
    units, result = computed.units, computed.result
    lost = result.failures.keys() | result.hook_failures.keys()
    return [
        capture_rows(
            units,
            capture,
            computed.samples,
            computed.good,
            values,
            produced=result.produced,
            lost=lost,
            is_special=computed.model.tokenizer.is_special,
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
