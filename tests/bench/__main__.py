"""Ember against what a user would run instead, and against what the machine can do; row by row.

EMBER_REFERENCE_PYTHON=python-with-llama-cpp python -m tests.bench MODEL-Q8_0.gguf [--rows extraction,cold] …
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import decoding, processes, states
from tests.bench.peers import machine
from tests.bench.setting import Row, Setting, load
from tests.bench.table import as_markdown, as_record

ROWS: dict[str, Callable[[Setting], Row]] = {
    "extraction": states.extraction,
    "few-shot": states.few_shot_row,
    "unshared": states.unshared_row,
    "big": states.big_row,
    "decode-lockstep": decoding.lockstep_row,
    "decode-single": decoding.single_row,
    "cold": processes.cold_row,
    "workers": processes.workers_row,
    "memory": processes.memory_row,
    "growth": processes.growth_row,
}


def main() -> None:
    arguments = _arguments()
    setting = _setting(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    known = arguments.out / "tuned.json"
    setting.tuned.update(json.loads(known.read_text()) if known.exists() else {})
    try:
        for name in arguments.rows:
            before = load()
            row = ROWS[name](setting)
            about = {
                "when": time.strftime("%Y-%m-%d %H:%M"),
                "machine": machine(),
                "load": [before, load()],
                "rounds": setting.rounds,
                "threads": setting.threads,
            }
            record = as_record(row, about)
            (arguments.out / f"{name}.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
            (arguments.out / f"{name}.md").write_text(as_markdown(record))
            known.write_text(json.dumps(setting.tuned, indent=1) + "\n")
            print(as_markdown(record), flush=True)
    finally:
        shutil.rmtree(setting.folder, ignore_errors=True)


def _setting(arguments: argparse.Namespace) -> Setting:
    return Setting(
        arguments.model,
        arguments.reference,
        arguments.rounds,
        arguments.threads,
        arguments.prompts,
        arguments.steps,
        arguments.big,
        arguments.sizes,
        arguments.crowd,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=_rows, default=list(ROWS), help=f"some of {','.join(ROWS)}; all by default")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=200, help="at most 200")
    parser.add_argument("--steps", type=int, default=32, help="tokens after each prompt, where some are generated")
    parser.add_argument("--big", type=Path, help="the shape of a 1B model in Q8_0; made when needed and not given")
    parser.add_argument("--sizes", type=_sizes, default=(1_000, 10_000, 100_000), help="prompts of the row `growth`")
    parser.add_argument("--crowd", type=int, default=1200, help="prompts of the row `workers`")
    parser.add_argument("--reference", default=os.environ.get("EMBER_REFERENCE_PYTHON"))
    return parser.parse_args()


def _rows(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return names


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
