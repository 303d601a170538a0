"""Time what hooks cost: no hooks, an experiment that does nothing, captures of every layer, in interleaved repeats.

    python -m tests.bench.hooks MODEL [--repeats 9] [--out FILE.json]

One BLAS thread. Prefill is one prompt of 128 tokens; decode is 32 evaluations of one token, the prompt's not counted;
extraction is 64 prompts for their last token's state, once such that nothing can be shared and once from a template
whose first tokens are. A prompt with an experiment shares nothing, is not pruned and has logits; so the first is timed
without hooks in that shape too, which leaves the calls alone as the difference.

Then the memory that Python and NumPy hold after each of 48 decode evaluations, by tracemalloc: what each evaluation of
the later half added, all layers together, beyond the rows that captures are asked to keep.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ember
from ember.hooks import Experiment
from ember.model import Model
from ember.sites import SITES
from ember.work import ALL_STEPS, CaptureWork, UnitWork
from tests.bench.peers import machine
from tests.bench.rounds import ROOT
from tests.bench.worker import UNSET
from tests.bench.workload import texts

NONE, NOOP, CAPTURES, UNPRUNED = "no hooks", "no-op experiment", "captures of all layers", "no hooks, no pruning"
CONTENDERS = (NONE, NOOP, CAPTURES)
UNSHARED = "extraction, nothing shared"
PREFILL_TOKENS, DECODED, EXTRACTED, WATCHED = 128, 32, 64, 48


class Nothing(Experiment):
    """Every hook is called, and none does anything."""

    name = "nothing"
    mutates = False


@dataclass(slots=True)
class Line:
    """What one contender took, repeat after repeat."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Of the process, which computes with one thread."""
    rows: int = 0
    """Token rows that the unit computed."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hooks", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if any(name in os.environ for name in UNSET):  # they choose other kernels than the machine's own
        kept = {name: value for name, value in os.environ.items() if name not in UNSET}
        command = [sys.executable, "-m", "tests.bench.hooks", *sys.argv[1:]]
        sys.exit(subprocess.run(command, cwd=ROOT, env=kept, check=False).returncode)
    record = measure(arguments.model, arguments.repeats)
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1, default=str) + "\n")
    print(as_markdown(record))


def measure(path: str | Path, repeats: int, *, prompts: int = EXTRACTED) -> dict[str, Any]:
    """Time every kind of work with every contender and watch memory; the record of a run."""
    with ember.open(path, threads=1) as model:
        works = {
            "prefill": _prefill(model),
            "decode": _decode(model, DECODED),
            UNSHARED: _extraction(model, _unshared(model, prompts)),
            "extraction, one template": _extraction(model, _templated(model, prompts)),
        }
        record = {
            "when": time.strftime("%Y-%m-%d %H:%M"),
            "machine": machine(),
            "model": Path(path).name,
            "route": model.route,
            "layers": model.n_layers,
            "repeats": repeats,
            "work": {
                name: _interleaved(run, repeats, (*CONTENDERS, UNPRUNED) if name == UNSHARED else CONTENDERS)
                for name, run in works.items()
            },
            "growth": {contender: growth(model, contender) for contender in CONTENDERS},
        }
    record["load_after"] = os.getloadavg()[0]
    return record


Run = Callable[[str], tuple[float, float, int]]
"""Runs a contender; gives wall seconds, processor seconds and rows computed."""


def _interleaved(run: Run, repeats: int, contenders: Sequence[str]) -> dict[str, Line]:
    lines = {contender: Line() for contender in contenders}
    for contender in contenders:  # warm-up
        run(contender)
    for repeat in range(repeats):
        # each goes first in turn, so that none gains by its place
        for contender in np.roll(contenders, repeat).tolist():
            seconds, cpu, rows = run(contender)
            lines[contender].seconds.append(seconds)
            lines[contender].cpu_seconds.append(cpu)
            lines[contender].rows = rows
    return lines


def _run(model: Model, work: UnitWork, contender: str, listener: Any = None) -> tuple[float, float, int]:
    experiments = [[Nothing()] for _ in work.prompts] if contender == NOOP else []
    started, used = time.perf_counter(), time.process_time()
    result = model.run_unit(work, experiments, listener)
    took = time.perf_counter() - started, time.process_time() - used
    if result.failures or result.hook_failures:
        raise RuntimeError(f"{contender}: {result.failures or result.hook_failures}")
    return (*took, result.rows_computed)


def _prefill(model: Model) -> Run:
    prompt = _tokens(model, min(PREFILL_TOKENS, model.context_length - 1))

    def run(contender: str) -> tuple[float, float, int]:
        return _run(model, _continued(model, prompt, contender, 1), contender)

    return run


def _decode(model: Model, count: int) -> Run:
    """Between the first new token and the last: decode evaluations only."""
    prompt = _tokens(model, 16)

    def run(contender: str) -> tuple[float, float, int]:
        at: list[tuple[float, float]] = []

        def listen(prompt: int, token: int, ids: list[int]) -> bool:
            at.append((time.perf_counter(), time.process_time()))
            return False

        _run(model, _continued(model, prompt, contender, count + 1), contender, listen)
        (wall, used), (later, more) = at[0], at[-1]
        return (later - wall) / count, (more - used) / count, 1

    return run


def _continued(model: Model, prompt: Any, contender: str, count: int) -> UnitWork:
    captures: tuple[CaptureWork, ...] = ()
    if contender == CAPTURES:
        captures = tuple(_everywhere(model, site, [prompt]) for site in SITES)
        captures += tuple(
            CaptureWork(one.site, one.layers, ((),), step=ALL_STEPS) for one in (captures if count > 1 else ())
        )
    return UnitWork((prompt,), captures, max_tokens=count)


def _everywhere(model: Model, site: str, prompts: Sequence[Any]) -> CaptureWork:
    layers = tuple(range(model.n_layers)) if SITES[site].per_layer else (-1,)
    return CaptureWork(site, layers, tuple((len(prompt) - 1,) for prompt in prompts))


def _extraction(model: Model, prompts: Sequence[Any]) -> Run:
    ends = tuple((len(prompt) - 1,) for prompt in prompts)
    everywhere = tuple(tuple(range(len(prompt))) for prompt in prompts)
    last = (model.n_layers - 1,)
    one = CaptureWork("after_layer", last, ends)
    captures = {
        CAPTURES: [_everywhere(model, site, prompts) for site, about in SITES.items() if about.per_layer],
        UNPRUNED: [CaptureWork("after_layer", last, everywhere), CaptureWork("after_logits", (-1,), ends)],
    }

    def run(contender: str) -> tuple[float, float, int]:
        return _run(model, UnitWork(tuple(prompts), tuple(captures.get(contender, [one]))), contender)

    return run


def _tokens(model: Model, count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, model.vocab_size, count).astype(np.int32)


def _unshared(model: Model, count: int) -> list[Any]:
    prompts = [_tokens(model, 28, seed) for seed in range(count)]
    for index, prompt in enumerate(prompts):
        prompt[0] = index  # no two begin alike
    return sorted(prompts, key=lambda prompt: int(prompt[0]))


def _templated(model: Model, count: int) -> list[Any]:
    found = [np.array(model.tokenizer.encode(text).ids, np.int32) for text in texts(count)]
    return sorted(found, key=lambda prompt: prompt.tolist())


def growth(model: Model, contender: str, count: int = WATCHED) -> dict[str, float]:
    """Bytes and blocks that each later decode evaluation leaves allocated; a first run is not counted.

    The collector of cycles rests meanwhile: what needs it counts as left.
    """
    prompt = _tokens(model, 16)
    sizes, blocks = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def listen(prompt: int, token: int, ids: list[int]) -> bool:
        sizes[len(ids) - 1], blocks[len(ids) - 1] = tracemalloc.get_traced_memory()[0], sys.getallocatedblocks()
        return False

    work = _continued(model, prompt, contender, count)
    _run(model, work, contender, listen)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        _run(model, work, contender, listen)
    finally:
        tracemalloc.stop()
        gc.enable()
    half, evaluations = count // 2, count - 1 - count // 2
    asked = sum(len(one.layers) * _width(model, one) * 4 for one in work.captures if one.step is not None)
    return {
        "bytes_per_evaluation": float(sizes[-1] - sizes[half]) / evaluations - asked,
        "blocks_per_evaluation": float(blocks[-1] - blocks[half]) / evaluations,
        "rows_asked_for": asked,
    }


def _width(model: Model, one: CaptureWork) -> int:
    return model.vocab_size if SITES[one.site].width == "vocab" else model.hidden_size


def as_markdown(record: dict[str, Any]) -> str:
    """Write one row a work and contender: medians, spread, and times what no hooks take."""
    about = record["machine"]
    head = (
        f"{record['model']}, {record['layers']} layers, route {record['route']}, one thread, {record['repeats']} "
        f"interleaved repeats on {about['processor']}, {about['cores']} cores, {record['when']}; load {about['load']} "
        f"before and {record['load_after']:.1f} after. Figures belong to this machine: compare lines.\n"
    )
    rows = [
        "| work | | rows | processor ms: least, median, most | times none | wall ms: median | times none |",
        "|" + "---|" * 7,
    ]
    for work, lines in record["work"].items():
        base = lines[NONE]
        for contender, line in lines.items():
            cpu, wall = _milliseconds(line.cpu_seconds), _milliseconds(line.seconds)
            rows.append(
                f"| {work} | {contender} | {line.rows} | {cpu[0]:.2f}, {cpu[1]:.2f}, {cpu[2]:.2f} "
                f"| {cpu[1] / _milliseconds(base.cpu_seconds)[1]:.3f} | {wall[1]:.2f} "
                f"| {wall[1] / _milliseconds(base.seconds)[1]:.3f} |"
            )
    memory = [
        f"- {contender}: each decode evaluation adds {found['bytes_per_evaluation']:.0f} bytes in "
        f"{found['blocks_per_evaluation']:.1f} blocks, beyond {found['rows_asked_for']:.0f} bytes of rows asked for"
        for contender, found in record["growth"].items()
    ]
    return "\n".join([head, *rows, "", *memory]) + "\n"


def _milliseconds(seconds: Sequence[float]) -> tuple[float, float, float]:
    return min(seconds) * 1e3, statistics.median(seconds) * 1e3, max(seconds) * 1e3


if __name__ == "__main__":
    main()
