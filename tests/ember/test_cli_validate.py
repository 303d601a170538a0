"""`ember validate`: a table and a verdict, a record, exit statuses, and refusals in one message."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.foundry.cases import CONTEXT, TINY_CASES
from tests.foundry.tiny import tiny_llama

RECORDED = Path(__file__).parent / "goldens" / "recorded" / "q4_0.npz"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("q4_0") / "tiny-q4_0.gguf", context=CONTEXT, **TINY_CASES["q4_0"])


def ember(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ember", "validate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_agreement_is_told_in_a_table_and_kept_in_a_record(tiny: Path, tmp_path: Path) -> None:
    done = ember(tiny, "--against", RECORDED, "--route", "reference", "--out", tmp_path / "record.json")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "max|d|/rms by layer, worst of 5 prompts of 1, 2, 33, 70, 530 tokens"
    sites = ["before_layer", "after_attention", "after_mlp", "after_layer"]
    assert lines[1].split() == ["layer", *sites, "least", "cosine"]
    assert [line.split()[0] for line in lines[2:5]] == ["0", "1", "2"]
    assert "highest logit the same: 5/5; greedy ids the same: 60/60" in lines
    assert lines[-1].startswith("agrees, so reaches the rung 'activation reference'")
    record = json.loads((tmp_path / "record.json").read_text())
    assert (record["agrees"], record["route"], record["rung"]) == (True, "reference", "activation reference")
    assert record["model"]["quant_types"] == {"Q4_0": 22, "F32": 7}
    assert len(record["model"]["sha256"]) == 64
    assert record["numerics"]["route"] == "reference"
    assert len(record["figures"]) == 3 * len(sites) + 2


def test_disagreement_has_status_1_and_says_where(tiny: Path, tmp_path: Path) -> None:
    with np.load(RECORDED) as archive:
        arrays = {key: archive[key] for key in archive.files}
    arrays["l_out"][2, 1] *= 1.001
    np.savez(tmp_path / "wrong.npz", **arrays)
    done = ember(tiny, "--against", tmp_path / "wrong.npz")
    assert (done.returncode, done.stderr) == (1, "")
    assert "does NOT agree" in done.stdout
    assert "  after_layer of layer 1: max|d|/rms" in done.stdout
    told = json.loads(ember(tiny, "--against", tmp_path / "wrong.npz", "--json").stdout)
    assert (told["agrees"], told["rung"]) == (False, None)


def test_bad_usage_has_status_2_and_one_message(tiny: Path, tmp_path: Path) -> None:
    empty, prompts = tmp_path / "empty.txt", tmp_path / "p.txt"
    empty.write_text("\n\n")
    prompts.write_text("كتب\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    (tmp_path / "long.txt").write_text("كتب " * 2000)
    for arguments, told in [
        (("--against", "ollama"), "expected llama.cpp, transformers, or a recording (.npz)"),
        (("--against", tmp_path / "absent.npz"), "no such file"),
        (("--against", RECORDED, "--prompts", prompts), "a recording has its own prompts"),
        (("--against", RECORDED, "--out", tmp_path / "x.txt"), "expected a .json in a folder that exists"),
        (("--prompts", empty), "holds no prompt"),
        (("--prompts", tmp_path / "absent.txt"), "cannot be read"),
        (("--prompts", tmp_path / "latin.txt"), "byte 3 is not UTF-8"),
        (("--prompts", tmp_path / "long.txt"), "so that 12 can follow in the model's context of 640"),
        (("--prompts", prompts, "--reference-python", tmp_path / "python"), "cannot be run"),
    ]:
        done = ember(tiny, *arguments)
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        assert told in done.stderr, (arguments, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("against", ["llama.cpp", "transformers"])
def test_an_absent_reference_is_refused_by_name_with_the_way_out(against: str, tiny: Path, tmp_path: Path) -> None:
    module = {"llama.cpp": "llama_cpp", "transformers": "transformers"}[against]
    if importlib.util.find_spec(module):
        pytest.skip(f"{module} is installed here")
    (tmp_path / "p.txt").write_text("كتب\n")
    done = ember(tiny, "--against", against, "--prompts", tmp_path / "p.txt")
    assert done.returncode == 2
    assert module in done.stderr
    assert "pip install 'ember[reference]'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("against", ["llama.cpp", "transformers"])
def test_live_references_agree(against: str, tiny: Path, tmp_path: Path) -> None:
    python = os.environ.get("EMBER_REFERENCE_PYTHON")
    if not python:
        pytest.skip("EMBER_REFERENCE_PYTHON is unset: name a Python that has the extra `reference`")
    (tmp_path / "p.txt").write_text("كَتَبَ الوَلَدُ\nthe\n")
    done = ember(tiny, "--against", against, "--reference-python", python, "--prompts", tmp_path / "p.txt")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "greedy ids the same: 24/24" in done.stdout
