"""`ember probe` as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pipelines.cli.probe import probe
from tests.foundry.probe_run import crossed, write_probe_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    return write_probe_run(
        tmp_path_factory.mktemp("cli") / "run",
        crossed(6, 3, 3),
        lambda _c, _l, stimuli: random.standard_normal((len(stimuli), 4)).astype(np.float32),
        width=4,
    )


def ember(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ember", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_a_run_alone_is_probed_and_told(run: Path, tmp_path: Path) -> None:
    done = ember("probe", str(run), "--serial", "--out", "probes", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["stimuli"] == 54
    assert {one["label"] for one in record["problems"]} == {"root", "pattern", "kind"}
    assert {one["split"] for one in record["problems"]} >= {"random", "root-heldout", "root-and-pattern-heldout"}
    assert (tmp_path / "probes" / "results.parquet").is_file()
    again = ember("probe", str(run), "--serial", "--out", "probes", cwd=tmp_path)
    assert "already there" in again.stdout
    assert "refused   root, root-heldout: every class occurs in one root only" in again.stdout


def test_a_plan_is_run_from_its_folder(run: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        f"schema: ember.probe/v1\nruns: [{run}]\nlabels: [pattern]\nsplits: [random]\nprobes: [mean_difference]\n"
        f"output: {{dir: {tmp_path}/out}}\n"
    )
    done = CliRunner().invoke(probe, [str(tmp_path / "plan.yaml"), "--serial"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "pattern, random, mean_difference, last: best at layer" in done.output
    assert "wrote results.parquet" in done.output


@pytest.mark.parametrize(
    ("argument", "status", "said"),
    [("absent", 2, "no such file or directory; give a probe plan"), (".", 1, "holds no finished run")],
)
def test_what_cannot_be_probed_is_one_message(tmp_path: Path, argument: str, status: int, said: str) -> None:
    done = ember("probe", argument, cwd=tmp_path)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr
