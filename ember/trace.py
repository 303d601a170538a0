"""Traces: the journal of operations that `Model.trace` tells, as a file of JSON lines, and its summary by kind."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import numpy as np
import threadpoolctl

from ember.engine.events import Event, Phase, Values, WeightState
from ember.errors import InputError
from ember.sites import NO_LAYER
from ember.work import CaptureWork, Tokens, UnitResult, UnitWork

__all__ = [
    "Event",
    "Peak",
    "Row",
    "Trace",
    "Values",
    "is_special",
    "measure_peak",
    "read_journal",
    "summarise",
    "total",
    "traced_work",
    "write_journal",
    "write_whole",
]

Result = TypeVar("Result")

LONGEST_LINE: Final = 1 << 16
"""Characters of a journal's line; an event has some 500."""
PEAK_SIZE: Final = 1024
PEAK_REPEATS: Final = 5


@dataclass(frozen=True, slots=True)
class Trace:
    """What tracing one prompt gave."""

    events: list[Event]
    """In the order in which the operations ran; empty where they were given to `emit`."""
    prompt_ids: list[int]
    token_ids: list[int]
    """New tokens; none for a prefill alone. The last was never fed."""
    stopped: str | None
    """As in `ember.Generation`; None for a prefill alone."""
    findings: list[tuple[str, Any]]
    """Name and `results()` of each experiment that has some."""

    @classmethod
    def of(cls, prompt: Tokens, events: list[Event], result: UnitResult) -> "Trace":
        """Gather what a traced run of one prompt gave."""
        made = result.produced[0] if result.produced else None
        findings = [(name, found) for _, name, found in result.findings]
        return cls(
            events, prompt.tolist(), list(made.token_ids) if made else [], made.stopped if made else None, findings
        )


def traced_work(prompt: Tokens, max_tokens: int, stop_ids: tuple[int, ...]) -> UnitWork:
    """Return the work of a traced run: a prefill that ends in the logits of the prompt's last token, and greedy steps.

    One prompt is never pruned, and one head product serves all who ask, so that the events are whole and the same
    whoever looks on.
    """
    if max_tokens:
        return UnitWork((prompt,), max_tokens=max_tokens, stop_ids=stop_ids)
    return UnitWork((prompt,), (CaptureWork("after_logits", (NO_LAYER,), ((len(prompt) - 1,),)),))


@contextmanager
def write_journal(path: Path) -> Iterator[Callable[[Event], None]]:
    """Give a function that writes an event as a line of `path`, which appears whole at the end or not at all.

    Raises InputError where it cannot be written.
    """
    with write_whole(path) as write:
        yield lambda event: write(json.dumps(event.record(), ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def write_whole(path: Path) -> Iterator[Callable[[str], None]]:
    """Give a function that writes text to a file, which takes the name `path` at the end; an exception leaves none.

    What is not a regular file (a pipe, /dev/stdout) is written as it is. Raises InputError where it cannot be written.
    """
    special = is_special(path)
    there = path if special else path.with_name(f".{path.name}.{os.getpid()}.part")
    file = _said(path, lambda: there.open("w", encoding="utf-8"))
    try:

        def write(text: str) -> None:
            _said(path, lambda: file.write(text))

        yield write
        _said(path, file.close)
        if not special:
            _said(path, lambda: there.replace(path))
    finally:
        with suppress(OSError):
            file.close()
        if not special:
            there.unlink(missing_ok=True)


def is_special(path: Path) -> bool:
    """Whether `path` is there and no regular file: a pipe, a terminal, a directory."""
    return path.exists() and not path.is_file()


def _said(path: Path, action: Callable[[], Result]) -> Result:
    try:
        return action()
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


_TEXTS: Final = ("name", "op_kind", "kernel")
_COUNTS: Final = ("token_index", "input_bytes", "output_bytes", "weight_bytes", "duration_ns", "estimated_flops")
_SHAPES: Final = ("input_shape", "output_shape")


def read_journal(path: Path) -> Iterator[Event]:
    """Yield the events of a journal. Raises InputError, naming the line, for what is none."""
    try:
        with path.open(encoding="utf-8") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                yield _event(line, f"{path}: line {number}")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a journal of `ember trace`: not UTF-8 ({error.reason})") from None


def _event(line: str, where: str) -> Event:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: expected one JSON object of `ember trace`, found {line[:40]!r}") from None
    wrong = _first_wrong(found) if isinstance(found, dict) else "a JSON object"
    if wrong is not None:
        raise InputError(f"{where}: not an event of `ember trace`: expected {wrong}")
    plain: dict[str, Any] = {
        name: found[name] for name in (*_TEXTS, *_COUNTS, "phase", "layer", "weights", "fused_into")
    }
    plain |= {name: tuple(found[name]) for name in _SHAPES}
    values = Values(found.get("norm"), found["fingerprint"]) if "fingerprint" in found else None
    return Event(**plain, values=values)


def _first_wrong(found: dict[str, Any]) -> str | None:
    """Say what an event lacks; None: nothing."""
    checks = [
        *((isinstance(found.get(name), str), f"a text as {name}") for name in _TEXTS),
        *((_is_count(found.get(name)), f"an integer of 0 to 2**63 - 1 as {name}") for name in _COUNTS),
        *((_is_shape(found.get(name)), f"a list of sizes as {name}") for name in _SHAPES),
        (found.get("phase") in get_args(Phase), f"one of {', '.join(get_args(Phase))} as phase"),
        (found.get("layer", "") is None or _is_count(found.get("layer")), "a layer or null as layer"),
        (found.get("weights", "") in (None, *get_args(WeightState)), "a state or null as weights"),
        (isinstance(found.get("fused_into", 0), str | None), "a name or null as fused_into"),
        (isinstance(found.get("fingerprint"), str | None), "a text or null as fingerprint"),
        (isinstance(found.get("norm"), float | int | None), "a number or null as norm"),
    ]
    return next((expected for holds, expected in checks if not holds), None)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))


@dataclass(slots=True)
class Row:
    """A line of a summary: all operations of one kind in one phase."""

    phase: str
    op_kind: str
    """Kinds joined by `+` where one ran inside the other."""
    events: int = 0
    duration_ns: int = 0
    nbytes: int = 0
    """Activations read and written, and weights as they are kept."""
    flops: int = 0

    def take(self, event: Event) -> None:
        """Add an event."""
        self.events += 1
        self.duration_ns += event.duration_ns
        self.nbytes += event.input_bytes + event.output_bytes + event.weight_bytes
        self.flops += event.estimated_flops

    def per_second(self, count: int) -> float:
        """Return a count by the time that these operations took; 0 where no time was measured."""
        return count * 1e9 / self.duration_ns if self.duration_ns else 0.0


def summarise(events: Iterable[Event]) -> list[Row]:
    """Add up events by phase and kind: prefill first, then what took longest."""
    rows: dict[tuple[str, str], Row] = {}
    waiting: dict[str, list[Event]] = {}
    for event in events:
        if event.fused_into is not None:
            waiting.setdefault(event.fused_into, []).append(event)
            continue
        together = [*waiting.pop(event.name, []), event]
        kind = "+".join(one.op_kind for one in together)
        row = rows.setdefault((event.phase, kind), Row(event.phase, kind))
        for one in together:
            row.take(one)
    order = get_args(Phase)
    return sorted(rows.values(), key=lambda row: (order.index(row.phase), -row.duration_ns, row.op_kind))


def total(rows: Sequence[Row]) -> Row:
    """Add up rows of one phase."""
    return Row(
        rows[0].phase,
        "total",
        sum(row.events for row in rows),
        sum(row.duration_ns for row in rows),
        sum(row.nbytes for row in rows),
        sum(row.flops for row in rows),
    )


@dataclass(frozen=True, slots=True)
class Peak:
    """The float32 matrix multiply of this machine."""

    flops_per_second: float
    threads: int


def measure_peak(threads: int) -> Peak:
    """Time products of 1024 x 1024 x 1024 in this process, with so many BLAS threads; the best of five counts."""
    a = np.random.default_rng(0).standard_normal((PEAK_SIZE, PEAK_SIZE), np.float32)
    out = np.empty_like(a)
    with threadpoolctl.threadpool_limits(threads, "blas"):
        np.matmul(a, a, out=out)
        times = []
        for _ in range(PEAK_REPEATS):
            start = time.perf_counter()
            np.matmul(a, a, out=out)
            times.append(time.perf_counter() - start)
    return Peak(2 * PEAK_SIZE**3 / min(times), threads)
