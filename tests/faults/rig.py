"""Small runs for tests: a tiny model, a config beside it, and a process that runs it."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from pipelines import journal
from pipelines.config import RunConfig, load_config
from tests.faults.engines import Fault
from tests.foundry.tiny import tiny_llama

ROOT = Path(__file__).resolve().parents[2]
FAULTY = "tests.faults.engines:open_faulty"
DRIVER = """
import sys
from pipelines.cli.run import run
from pipelines import running as module
if {opener!r}:
    original = module.run
    module.run = lambda *a, **k: original(*a, **k, opener={opener!r})
from ember.cli.main import run as outcome
sys.exit(outcome(lambda: run.main(sys.argv[1:], standalone_mode=False)))
"""


def prompts(n: int) -> list[str]:
    """Prompts of two openings, so that some prefixes are shared."""
    opening = ("the scribe wrote the book and", "then")
    return [f"{opening[i % 2]} number {i} {'abc'[i % 3] * (i % 7)} end" for i in range(n)]


def write_config(folder: Path, items: list[Any], name: str = "run", **changes: Any) -> Path:
    """Write a config over `items` (and a tiny model, once) in `folder`; `changes` replace or add sections."""
    model = folder / "tiny.gguf"
    if not model.exists():
        tiny_llama(model, n_layers=3, context=256)
    config: dict[str, Any] = {
        "schema": "ember.pipeline/v1",
        "name": name,
        "model": {"path": "tiny.gguf"},
        "stimuli": {"items": items},
        "hooks": {"capture": [{"site": "after_layer"}]},
        "engine": {"unit_rows": 64},
        "guard": {"allow_chance": True},
        "output": {"dir": str(folder / name)},
    } | changes
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in config.items() if value is not None}, sort_keys=False))
    return path


def make_config(folder: Path, items: list[Any], name: str = "run", **changes: Any) -> RunConfig:
    """As `write_config`, loaded."""
    return load_config(write_config(folder, items, name, **changes))


def start(config: Path, *options: str, fault: Fault | None = None, **kwargs: Any) -> "subprocess.Popen[str]":
    """Start `ember pipeline run` in a process group of its own, with a faulty engine if a fault is given."""
    code = DRIVER.format(opener=FAULTY if fault else "")
    return subprocess.Popen(
        [sys.executable, "-c", code, str(config), *options],
        cwd=ROOT,
        env={**os.environ, **(fault.environment if fault else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **kwargs,
    )


def finish(process: "subprocess.Popen[str]", timeout: float = 120) -> tuple[int, str, str]:
    """Wait for a run's process: exit status, stdout, stderr."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        raise AssertionError(f"the run hangs; it said:\n{out}\n{err}") from None
    assert "Traceback" not in err, err
    return process.returncode, out, err


def run_cli(config: Path, *options: str, fault: Fault | None = None) -> tuple[int, str, str]:
    """Run a config in a process of its own: exit status, stdout, stderr."""
    return finish(start(config, *options, fault=fault))


def tables(run_dir: Path) -> dict[str, str]:
    """Checksum of every file that a run leaves outside `.ember` and that must not differ between ways to run it."""
    files = [path for path in sorted(run_dir.rglob("*.parquet")) if ".ember" not in path.parts]
    return {path.relative_to(run_dir).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def manifest(run_dir: Path) -> dict[str, Any]:
    """Read a manifest as plain data."""
    found: dict[str, Any] = json.loads((run_dir / "manifest.json").read_text())
    return found


def failures(run_dir: Path) -> list[dict[str, Any]]:
    """Read `failures.jsonl`."""
    return [json.loads(line) for line in (run_dir / "failures.jsonl").read_text().splitlines()]


def passes(run_dir: Path) -> Counter[str]:
    """Forward passes per piece, as the workers' logs count them."""
    return Counter(line["piece"] for line in journal.events(run_dir) if line["event"] == "forward")


def passes_after_receipt(run_dir: Path) -> list[str]:
    """Pieces that were computed although their receipt had been committed before: must be empty."""
    seen, again = set(), []
    for line in journal.events(run_dir):
        if line["event"] == "receipt":
            seen.add(line["piece"])
        elif line["event"] == "dropped":
            seen.discard(line["piece"])
        elif line["event"] == "forward" and line["piece"] in seen:
            again.append(line["piece"])
    return again
