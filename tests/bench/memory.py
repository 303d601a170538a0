"""Measure the private memory of one process that runs the shape of a 1B model with streamed weights.

    python -m tests.bench.memory [--model BIG-Q8_0.gguf]

Private is RssAnon + RssShmem, which the factory's watchdog counts; pages of the mapped model are not in it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from ember.bench import private_bytes
from tests.bench.rounds import ROOT
from tests.bench.worker import UNSET

UNIT_ROWS = 4096
PROMPT_LENGTH = 128
LIMIT = 1.5e9
_POLL_SECONDS = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory", description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(_measured(arguments.model)))
    else:
        print(json.dumps(measure(arguments.model), indent=1))


def measure(model: Path | None = None) -> dict[str, float]:
    """Run one unit of 4096 rows, every layer captured, one BLAS thread; make the model when none is given."""
    with tempfile.TemporaryDirectory() as folder:
        if model is None:
            from tests.foundry.requantise import big_llama

            model = big_llama(Path(folder) / "big.gguf")
        environment = {name: value for name, value in os.environ.items() if name not in UNSET}
        command = [sys.executable, "-m", "tests.bench.memory", "--inside", "--model", str(model.resolve())]
        answer = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    record: dict[str, float] = json.loads(answer.stdout)
    return record


def _private() -> int:
    found = private_bytes()
    assert found is not None, "this needs Linux"
    return found


def _measured(path: Path) -> dict[str, float]:
    import ember

    highest, done = [_private()], threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_SECONDS):
            highest[0] = max(highest[0], _private())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        model = ember.open(path, threads=1, memory_budget=0)
        before = _private()
        rng = np.random.default_rng(0)
        prompts = rng.integers(0, model.vocab_size, (UNIT_ROWS // PROMPT_LENGTH, PROMPT_LENGTH)).tolist()
        started = time.perf_counter()
        model.capture(tokens=prompts, site="after_layer", layers="all")
        seconds = time.perf_counter() - started
    finally:
        done.set()
        watcher.join()
    return {
        "rows": UNIT_ROWS,
        "seconds": round(seconds, 2),
        "rows_per_second": round(UNIT_ROWS / seconds, 1),
        "private_mb_opened": round(before / 1e6),
        "private_mb_highest": round(highest[0] / 1e6),
    }


if __name__ == "__main__":
    main()
