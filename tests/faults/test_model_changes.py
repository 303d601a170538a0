"""G09: the model's file is cut short or replaced while a run reads it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.engines import Fault
from tests.faults.rig import finish, prompts, run_cli, start, write_config
from tests.faults.test_kills import receipts, wait_for_receipts
from tests.foundry.tiny import tiny_llama

CHANGED = "model file changed during the run"


def truncate(model: Path) -> None:
    os.truncate(model, 4096)


def replace(model: Path) -> None:
    other = model.with_name("other.gguf")
    tiny_llama(other, seed=5, n_layers=3, context=256)
    other.replace(model)


# A serial run does not outlive a file that was cut short: reading beyond its end is a signal to this very process.
@pytest.mark.parametrize(
    ("change", "options"),
    [(truncate, ("--workers", "1")), (replace, ("--workers", "1")), (replace, ("--serial",))],
)
def test_the_run_stops_and_says_so(tmp_path: Path, change: Callable[[Path], None], options: tuple[str, ...]) -> None:
    model = tmp_path / "tiny.gguf"
    config, run_dir = write_config(tmp_path, prompts(60)), tmp_path / "run"
    copy = model.read_bytes()
    stat = model.stat()
    process = start(config, *options, fault=Fault("sleep", size=0.3))
    wait_for_receipts(run_dir, 1, process)
    change(model)
    status, _, err = finish(process)
    assert status == 1
    assert CHANGED in err
    assert not (run_dir / "manifest.json").exists()
    kept = receipts(run_dir)
    assert kept >= 1
    # With the file that was meant, what was finished is good.
    model.write_bytes(copy)
    os.utime(model, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    status, _, err = run_cli(config, "--serial")
    assert status == 0, err
    assert f"going on: {kept} units are finished" in err
