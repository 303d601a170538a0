"""The command line as a whole: help, exit statuses, other packages of the same name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.foundry.tiny import tiny_llama


def ember(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ember", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | environment,
        timeout=120,
        check=False,
    )


def test_help_lists_every_verb() -> None:
    done = ember("--help")
    assert done.returncode == 0
    for verb in ("inspect", "tokenize", "capture", "generate", "pipeline"):
        assert verb in done.stdout


def test_version() -> None:
    assert ember("--version").stdout.strip() == "ember, version 0.1.0"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("frobnicate",), 2, "No such command"),
        (("inspect",), 2, "Missing argument"),
        (("generate", "/nowhere/model.gguf", "a"), 1, "/nowhere/model.gguf: file: does not exist"),
        (("generate", "hf://owner/repo/file.gguf", "a"), 2, "download the .gguf"),
    ],
)
def test_bad_usage_is_one_message_and_a_status(arguments, status, said) -> None:
    done = ember(*arguments)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_another_package_called_pipelines_is_named(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text("")
    done = ember("pipeline", "--help", cwd=tmp_path)
    assert done.returncode == 1
    assert f"another one at {tmp_path}/pipelines/__init__.py" in done.stderr


def test_capture_writes_arrays_and_their_origin(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m.gguf", seed=1)
    out = tmp_path / "h.npz"
    done = ember(
        "capture", str(model), "كَتَبَ", "b", "--site", "after_layer", "--site", "after_logits", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    with np.load(out) as arrays:
        assert arrays["after_layer"].shape == (2, 3, 64)
        assert arrays["after_logits"].shape == (2, 512)
        assert arrays["rows"]["prompt"].tolist() == [0, 1]
    origin = json.loads((tmp_path / "h.npz.json").read_text())
    assert origin["tokenizer"]["pre"] == "gpt-2"
    again = ember("capture", str(model), "b", "--out", str(tmp_path / "h.txt"))
    assert again.returncode == 2
    assert "expected a .npz" in again.stderr


def test_a_full_output_is_one_message(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m.gguf", seed=1)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ember", "generate", str(model), "a"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "could not be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_keys_that_nobody_read_and_odd_vocabularies_are_told(tmp_path: Path) -> None:
    odd = {"llama.rope.freq_base": None, "llama.rope.freq_baze": 5000.0, "tokenizer.ggml.bos_token_id": 2**32 - 1}
    done = ember("generate", str(tiny_llama(tmp_path / "m.gguf", seed=1, metadata=odd)), "a", "--max-tokens", "2")
    assert done.returncode == 0, done.stderr
    assert "note: key llama.rope.freq_baze is not one of the llama family's" in done.stderr
    assert "4294967295" in done.stderr


def test_generate_prints_the_continuation_alone(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m.gguf", seed=1)
    done = ember("generate", str(model), "a", "--max-tokens", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"prompt", "token_ids", "text", "stopped", "seed", "findings"}
    empty = ember("generate", str(model), "")
    assert empty.returncode == 2
    assert "is empty" in empty.stderr
