"""Time what a trace costs while it runs: none, a trace, a trace with values, in interleaved repeats.

    python -m tests.bench.trace MODEL [--repeats 9]

One BLAS thread. The prefill is one prompt of 128 tokens; the continuation is 16 tokens and 32 more. Without a trace the
same work goes through the same entrance, and no object of a trace is made (tests/ember/test_trace.py holds it to that).
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ember
from ember.model import Model
from ember.trace import Event, traced_work
from ember.work import Tokens
from tests.bench.rounds import ROOT
from tests.bench.worker import UNSET

CONTENDERS = ("no trace", "trace", "trace with values")
WORKS = {"prefill of 128": (128, 0), "16 tokens and 32 more": (16, 33)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trace", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    if any(name in os.environ for name in UNSET):  # they choose other kernels than the machine's own
        kept = {name: value for name, value in os.environ.items() if name not in UNSET}
        command = [sys.executable, "-m", "tests.bench.trace", *sys.argv[1:]]
        sys.exit(subprocess.run(command, cwd=ROOT, env=kept, check=False).returncode)
    for row in measure(arguments.model, arguments.repeats):
        print(row)


def measure(path: str | Path, repeats: int) -> list[str]:
    """Give a line for every kind of work and contender: median and range of processor time, events."""
    rows = ["work | contender | events | median ms | range | beside no trace"]
    with ember.open(path, threads=1) as model:
        for name, (length, generated) in WORKS.items():
            prompt = np.arange(5, 5 + min(length, model.context_length - generated), dtype=np.int32)
            told, times = _interleaved(model, prompt, generated, repeats)
            plain = statistics.median(times[CONTENDERS[0]])
            for contender, seconds in times.items():
                middle = statistics.median(seconds)
                spread = f"{min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f}"
                rows.append(
                    f"{name} | {contender} | {told[contender]} | {middle * 1e3:.2f} | {spread} | {middle / plain:.3f}"
                )
    return rows


def _interleaved(
    model: Model, prompt: Tokens, generated: int, repeats: int
) -> tuple[dict[str, int], dict[str, list[float]]]:
    told = dict.fromkeys(CONTENDERS, 0)
    times: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
    for repeat in range(repeats + 1):
        for contender in np.roll(CONTENDERS, repeat).tolist():
            events: list[Event] = []
            start = time.process_time()
            _run(model, prompt, generated, contender, events.append)
            if repeat:  # the first warms up
                times[contender].append(time.process_time() - start)
            told[contender] = len(events)
    return told, times


def _run(model: Model, prompt: Tokens, generated: int, contender: str, emit: Callable[[Event], None]) -> None:
    if contender == CONTENDERS[0]:
        model.run_unit(traced_work(prompt, generated, ()))
        return
    values = contender == CONTENDERS[2]
    model.trace(tokens=prompt.tolist(), max_tokens=generated, stop_at_eos=False, values=values, emit=emit)


if __name__ == "__main__":
    main()
