"""`ember pipeline geometry` as it is typed."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ember.cli.main import run as exit_status_of
from pipelines.cli.main import pipeline
from tests.foundry.probe_run import crossed, write_probe_run


def test_a_run_is_measured_and_counted(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    run = write_probe_run(
        tmp_path / "run",
        crossed(4, 2, 2),
        lambda _c, _l, stimuli: random.standard_normal((len(stimuli), 4)).astype(np.float32),
        width=4,
    )
    done = CliRunner().invoke(pipeline, ["geometry", str(run)], catch_exceptions=False)
    assert done.exit_code == 0
    assert f"wrote geometry.parquet, maps.parquet, manifest.json in {run / 'geometry'}" in done.output
    done = CliRunner().invoke(pipeline, ["geometry", str(run), "--json"], catch_exceptions=False)
    counts = json.loads(done.output)["measures"]
    # 3 layers: 6 pairs for CKA and RSA, and 3 labels in 3 layers; two templates and two scripts, three units
    assert (counts["cka"], counts["rsa"]) == (6, 6 + 9)
    assert counts["tokens_per_word"] >= 3


def test_no_run_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = exit_status_of(lambda: pipeline.main(["geometry", str(tmp_path)], standalone_mode=False))
    assert status == 1
    assert "holds no finished run" in capsys.readouterr().err
