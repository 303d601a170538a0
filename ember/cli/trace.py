"""`ember trace`: the journal of every operation that a prompt sets off, and its summary."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

import ember
from ember.cli import options
from ember.errors import InputError
from ember.hooks.loading import load_experiment
from ember.model import Model
from ember.resources import find_resources
from ember.trace import (
    Event,
    Peak,
    Row,
    Trace,
    is_special,
    measure_peak,
    read_journal,
    summarise,
    total,
    write_journal,
    write_whole,
)

USAGE = "ember trace MODEL PROMPT --out FILE, or ember trace --summary FILE"


@dataclass(frozen=True, slots=True)
class _Request:
    """What is to be traced."""

    model: str
    prompt: str
    out: Path
    max_tokens: int
    experiments: tuple[str, ...]
    values: bool
    route: str
    threads: int | None


@click.command(
    epilog='Examples: ember trace builtin:sarf-nano "اسم الفاعل من الجذر ك ت ب:" --out trace.jsonl;  '
    "ember trace --summary trace.jsonl"
)
@click.argument("model", required=False)
@click.argument("prompt", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="The journal: a file of JSON lines.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Tokens to generate, greedily; 0: the prompt's prefill alone.",
)
@click.option(
    "--values",
    type=click.Choice(["none", "summary"]),
    default="none",
    show_default=True,
    help="`summary` adds norm and fingerprint of every output.",
)
@click.option("--experiment", "experiments", multiple=True, metavar="SPEC", help="Run an experiment; may be repeated.")
@click.option(
    "--summary",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Sum up a journal: time, bytes, FLOPs, share of peak.",
)
@options.engine
@options.as_json
def trace(
    model: str | None,
    prompt: str | None,
    out: Path | None,
    max_tokens: int,
    values: str,
    experiments: tuple[str, ...],
    summary: Path | None,
    route: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write one line for every operation of MODEL on PROMPT, and where they come from to OUT.json.

    With --summary, sum up a journal that is there already; its share of peak is that of the process that wrote it.
    """
    if summary is not None:
        if model is not None or out is not None:
            raise InputError(f"--summary {summary}: it sums up a journal that is there; expected {USAGE}")
        click.echo(_summary(summary, threads, as_json=as_json))
        return
    if model is None or prompt is None or out is None:
        missing = "MODEL" if model is None else "PROMPT" if prompt is None else "--out FILE"
        raise InputError(f"{missing} is missing; expected {USAGE}")
    request = _Request(model, prompt, out, max_tokens, experiments, values == "summary", route, threads)
    said = _traced(request, as_json=as_json)
    click.echo(said, err=is_special(out))  # a journal on standard output stays one


def _traced(request: _Request, *, as_json: bool) -> str:
    counted = 0
    with write_journal(request.out) as write:

        def emit(event: Event) -> None:
            nonlocal counted
            counted += 1
            write(event)

        opened = ember.open(request.model, route=request.route, threads=request.threads)  # type: ignore[arg-type]
        options.say_notes(opened.notes())
        experiments = [load_experiment(spec) for spec in request.experiments]
        for one in experiments:
            one.check(opened.context)
        # the first evaluation of each kind loads kernels and decodes resident weights: not what is to be timed
        opened.trace(request.prompt, max_tokens=min(request.max_tokens, 2), emit=_drop)
        found = opened.trace(
            request.prompt,
            max_tokens=request.max_tokens,
            experiments=experiments,
            values=request.values,
            emit=emit,
        )
        beside = _write_origin(request, opened, found, counted)
    if not as_json:
        return f"{counted} events\nwritten to {request.out}"
    told = {"out": str(request.out), "origin": beside and str(beside), "events": counted}
    return json.dumps(told | {"prompt_ids": found.prompt_ids, "token_ids": found.token_ids, "stopped": found.stopped})


def _drop(_: Event) -> None:
    """Leave an event unsaid."""


def _write_origin(request: _Request, model: Model, found: Trace, events: int) -> Path | None:
    """Write where a journal comes from beside it; a pipe or a terminal has nothing beside it."""
    if is_special(request.out):
        return None
    numerics = model.numerics()
    record = {
        "file": str(model.file.path),
        "model_sha256": model.file.sha256(),
        "model": model.card.record(),
        "tokenizer": model.tokenizer.record(),
        "prompt": request.prompt,
        "prompt_ids": found.prompt_ids,
        "token_ids": found.token_ids,
        "stopped": found.stopped,
        "experiments": [{"spec": spec} for spec in request.experiments],
        "findings": [{"experiment": name, "results": results} for name, results in found.findings],
        "events": events,
        "numerics": numerics,
        "peak": asdict(measure_peak(numerics["blas_threads"])),
    }
    beside = _origin_of(request.out)
    text = options.found_json(record, indent=1)
    with write_whole(beside) as write:
        write(text + "\n")
    return beside


def _origin_of(journal: Path) -> Path:
    return journal.with_suffix(journal.suffix + ".json")


def _summary(journal: Path, threads: int | None, *, as_json: bool) -> str:
    rows = summarise(read_journal(journal))
    if not rows:
        raise InputError(f"{journal}: no events; expected a journal of `ember trace`")
    told = _peak_beside(journal)
    peak = told or measure_peak(threads or find_resources().cpus)
    if as_json:
        lines = [_record(row, rows, peak) for row in rows]
        return json.dumps({"peak": asdict(peak), "peak_measured": "with the trace" if told else "now", "rows": lines})
    when = "measured by the process that wrote the trace" if told else "measured now: nothing beside the trace says it"
    said = f"peak {peak.flops_per_second / 1e9:.1f} GFLOP/s: float32 matrix product, {peak.threads} threads, {when}"
    return "\n".join([*_table(rows, peak), said])


def _peak_beside(journal: Path) -> Peak | None:
    try:
        found = json.loads(_origin_of(journal).read_text(encoding="utf-8"))["peak"]
        peak = Peak(float(found["flops_per_second"]), int(found["threads"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return peak if 0 < peak.flops_per_second < math.inf else None


def _record(row: Row, rows: Sequence[Row], peak: Peak) -> dict[str, Any]:
    phase_ns = sum(one.duration_ns for one in rows if one.phase == row.phase)
    return {
        "phase": row.phase,
        "op_kind": row.op_kind,
        "events": row.events,
        "duration_ns": row.duration_ns,
        "share_of_time": row.duration_ns / phase_ns if phase_ns else 0.0,
        "bytes": row.nbytes,
        "bytes_per_second": row.per_second(row.nbytes),
        "estimated_flops": row.flops,
        "flops_per_second": row.per_second(row.flops),
        "share_of_peak": row.per_second(row.flops) / peak.flops_per_second,
    }


def _table(rows: Sequence[Row], peak: Peak) -> list[str]:
    """Lay out the rows, each phase with its total."""
    head = ("phase", "kind", "events", "ms", "time", "MB", "GB/s", "GFLOP", "GFLOP/s", "of peak")
    lines: list[tuple[str, ...]] = [head]
    for phase in dict.fromkeys(row.phase for row in rows):
        mine = [row for row in rows if row.phase == phase]
        lines += [_cells(_record(row, rows, peak)) for row in (*mine, total(mine))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(_set(cell, width, at) for at, (cell, width) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]


def _set(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)


def _cells(found: dict[str, Any]) -> tuple[str, ...]:
    return (
        found["phase"],
        found["op_kind"],
        f"{found['events']}",
        f"{found['duration_ns'] / 1e6:.3f}",
        f"{found['share_of_time']:.1%}",
        f"{found['bytes'] / 1e6:.2f}",
        f"{found['bytes_per_second'] / 1e9:.2f}",
        f"{found['estimated_flops'] / 1e9:.3f}",
        f"{found['flops_per_second'] / 1e9:.2f}",
        f"{found['share_of_peak']:.1%}",
    )
