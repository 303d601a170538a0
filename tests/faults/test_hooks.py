"""Runs with interventions, sources, steps and experiments, on several workers and killed in the middle."""

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.faults.engines import Fault
from tests.faults.rig import failures, finish, manifest, prompts, run_cli, start, tables, write_config

CODE = """
from ember.hooks import Experiment

class Picky(Experiment):
    name = "picky"
    mutates = False

    def __init__(self):
        self.norms = []

    def after_mlp(self, ctx, contribution):
        if ctx.execution.input_token_count == 14 and ctx.layer == 1:
            raise ValueError("not this one")
        self.norms.append(float(abs(contribution.values()).max()))

    def results(self):
        return self.norms
"""
TEXTS = [
    {"id": f"s{i}", "prompt": prompt, "labels": {"layer": str(i % 3), "at": str(i % 5), "kind": "ab"[i % 2]}}
    for i, prompt in enumerate(prompts(40))
]
STIMULI = {"items": TEXTS, "allow_leaks": True}
CAPTURES = [
    {"site": "after_layer", "position": "all", "observe": "after"},
    {"name": "steps", "site": "after_mlp", "layers": [0], "position": "generated", "observe": "before"},
]
GENERATE = {"max_tokens": 3}


def write_configs(folder: Path) -> Path:
    """Run a source, and return the config of a run that does everything hooks can."""
    np.save(folder / "v.npy", np.random.default_rng(1).normal(size=(3, 64)))
    (folder / "picky.py").write_text(CODE)
    source = write_config(folder, [], "source", stimuli=STIMULI, hooks={"capture": CAPTURES}, generate=GENERATE)
    assert run_cli(source, "--serial")[0] == 0
    place = {"site": "after_layer", "layers": "{layer}", "position": {"index": "{at}"}}
    acts: list[dict[str, Any]] = [
        {"operation": "zero", "where": {"kind": "a"}} | place,
        {"operation": "interpolate", "strength": 0.5, "source": {"run": "source", "capture": "after_layer"}} | place,
        {
            "operation": "add",
            "site": "after_mlp",
            "layers": "all",
            "position": "generated",
            "source": {"vector": "v.npy"},
        },
    ]
    experiment = [{"use": "picky.py:Picky", "where": {"kind": "b"}}]
    hooks = {"capture": CAPTURES, "intervene": acts, "experiment": experiment}
    return write_config(folder, [], stimuli=STIMULI, hooks=hooks, generate=GENERATE)


def files(run_dir: Path) -> dict[str, str]:
    """Checksums of all tables, findings included."""
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in run_dir.glob("experiments/*.jsonl")}
    assert found
    return found | tables(run_dir)


@pytest.mark.slow
def test_workers_and_kills_leave_no_trace(tmp_path: Path) -> None:
    config = write_configs(tmp_path)
    text = config.read_text()
    assert run_cli(config, "--serial")[0] == 3
    alone, told = files(tmp_path / "run"), manifest(tmp_path / "run")
    broken = failures(tmp_path / "run")
    assert broken
    assert {one["detail"] for one in broken} == {
        "experiment 'picky' failed in after_mlp (phase=prefill, layer=1): not this one"
    }
    for name, workers in (("one", "1"), ("two", "2")):
        config.write_text(text.replace(f"dir: {tmp_path}/run", f"dir: {tmp_path}/{name}"))
        assert run_cli(config, "--workers", workers)[0] == 3
        assert files(tmp_path / name) == alone
        assert manifest(tmp_path / name) == told

    config.write_text(text.replace(f"dir: {tmp_path}/run", f"dir: {tmp_path}/killed"))
    process = start(config, "--workers", "2", fault=Fault("sleep", size=0.3))
    receipts = tmp_path / "killed/.ember/receipts"
    deadline = time.monotonic() + 60
    while len(list(receipts.glob("*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    for victim in (process.pid, *(child.pid for child in children)):
        if psutil.pid_exists(victim):
            os.kill(victim, signal.SIGKILL)
    process.communicate()
    psutil.wait_procs(children, timeout=10)
    assert not (tmp_path / "killed/manifest.json").exists()
    status, _, _ = finish(start(config, "--workers", "2"))
    assert status == 3
    assert files(tmp_path / "killed") == alone
    assert manifest(tmp_path / "killed") == told
