"""`ember inspect`: everything a file holds, safe to print, with a verdict."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ember.cli.inspect import inspect
from ember.errors import GGUFError
from ember.gguf.describe import grouped, visible
from tests.foundry import gguf_bytes as raw
from tests.foundry.gguf_bytes import Gguf, Tensor


def ember(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ember", *arguments], capture_output=True, text=True, timeout=60)


def lines(*arguments: str) -> list[str]:
    done = CliRunner().invoke(inspect, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output.splitlines()


def record(*arguments: str) -> dict:
    return json.loads("\n".join(lines(*arguments, "--json")))


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with long values, layers, several types, one of them unknown, and hostile text."""
    pairs = [
        raw.string("general.architecture", "mamba"),
        raw.string("general.name", "\x1b[31mred\x07 \u202eevil [bold]not markup[/bold] كَتَبَ"),
        raw.string("tokenizer.chat_template", "{{ raise_exception('executed') }}" * 100),
        raw.strings("tokenizer.ggml.tokens", [f"t{i}" for i in range(1000)]),
        raw.numbers("mamba.sizes", raw.INT32, range(10)),
        raw.scalar("mamba.eps", raw.FLOAT32, float("nan")),
        raw.scalar("mamba.flag", raw.BOOL, 1),
    ]
    tensors = [Tensor(f"blk.{i}.ffn.weight", [32, 2], raw.Q8_0, bytes(68)) for i in range(3)]
    tensors += [Tensor("output.weight", [4, 2], raw.F32, bytes(32)), Tensor("odd", [7], 250, bytes(8))]
    file = tmp_path / "m.gguf"
    file.write_bytes(Gguf(pairs, tensors).to_bytes())
    return str(file)


def test_shows_each_part_of_the_file(path: str) -> None:
    shown = lines(path)
    assert shown[0] == path
    assert shown[1] == f"  GGUF version 3, alignment 32, {Path(path).stat().st_size / 1024:.1f} KiB"
    assert '  general.architecture = "mamba"' in shown
    assert '  tokenizer.ggml.tokens = ["t0", "t1", "t2", "t3", "t4", "t5", …] (1,000 x STRING)' in shown
    assert "  mamba.sizes = [0, 1, 2, 3, 4, 5, …] (10 x INT32)" in shown
    assert "  mamba.flag = True" in shown
    assert "  blk.*.ffn.weight  Q8_0              [2, 32]  68 B          x 3" in shown
    assert "  odd               unknown type 250  [7]      size unknown" in shown
    assert "  Q8_0: 3 tensors, 192 values, 204 B" in shown
    assert "  unknown type 250: 1 tensor, 7 values, size unknown, not decoded by Ember" in shown


def test_text_of_the_file_cannot_steer_the_terminal(path: str) -> None:
    output = "\n".join(lines(path))
    assert '"\\x1b[31mred\\x07 \\u202eevil [bold]not markup[/bold] كَتَبَ"' in output
    assert "\x1b" not in output
    assert "\u202e" not in output


def test_chat_template_is_cut_and_never_run(path: str) -> None:
    (line,) = [line for line in lines(path) if "tokenizer.chat_template" in line]
    assert line.endswith("… (3,300 characters)")
    assert len(line) < 250


def test_long_values_on_request(path: str) -> None:
    shown = lines(path, "--metadata")
    assert any("chat_template" in line and len(line) > 3300 for line in shown)
    assert any('"t255", …] (1,000 x STRING)' in line for line in shown)


def test_every_tensor_on_request(path: str) -> None:
    shown = lines(path, "--tensors")
    assert [line.split()[0] for line in shown if line.startswith("  blk.")] == [f"blk.{i}.ffn.weight" for i in range(3)]
    assert any(line.startswith("  odd") and "offset" in line for line in shown)


def test_refused_architecture_is_a_verdict_not_a_failure(path: str) -> None:
    shown = lines(path)
    assert shown[-2] == "Ember would not run it"
    assert "mamba" in shown[-1]
    assert "llama" in shown[-1]
    done = ember("inspect", path)
    assert (done.returncode, done.stderr) == (0, "")


def test_json_is_strict_and_complete(path: str) -> None:
    found = record(path)
    assert found["metadata"]["mamba.eps"] == {"type": "FLOAT32", "value": "nan"}
    assert found["metadata"]["mamba.sizes"] == {"type": "ARRAY[INT32]", "length": 10, "first": [0, 1, 2, 3, 4, 5]}
    assert found["metadata"]["tokenizer.chat_template"]["characters"] == 3300
    assert found["tensors"][3] == {
        "name": "output.weight",
        "type": "F32",
        "type_id": 0,
        "shape": [2, 4],
        "part": 0,
        "offset": found["tensors"][3]["offset"],
        "bytes": 32,
    }
    assert found["tensors"][4]["bytes"] is None
    assert found["values"] == 192 + 8 + 7
    assert found["types"][0] == {
        "type": "Q8_0",
        "type_id": 8,
        "supported": True,
        "tensors": 3,
        "values": 192,
        "bytes": 204,
    }
    assert found["verdict"]["runs"] is False
    assert found["verdict"]["tokenizer"]["reads"] is False
    assert "mamba" in found["verdict"]["why"]


def test_broken_file_is_one_message_and_status_1(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(3))
    done = ember("inspect", str(bad))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {bad}: version: needs 4 bytes, 3 are left: the file looks truncated")
    assert len(done.stderr.splitlines()) == 1


def test_missing_file_is_status_1_and_no_file_is_status_2(tmp_path: Path) -> None:
    done = ember("inspect", str(tmp_path / "none.gguf"))
    assert (done.returncode, done.stderr.count("does not exist")) == (1, 1)
    assert ember("inspect").returncode == 2


def test_vocabulary_without_tensors(tmp_path: Path) -> None:
    file = tmp_path / "vocab.gguf"
    file.write_bytes(Gguf([raw.string("general.architecture", "llama")]).to_bytes())
    shown = lines(str(file))
    assert "tensors (0, 0 values)" in shown
    assert shown[-2] == "Ember would not run it"


def test_a_vocabulary_alone_is_read_as_a_tokenizer(shared: Path) -> None:
    shown = lines(str(shared / "vocab" / "ggml-vocab-llama-bpe.gguf"))
    assert "Ember reads its tokenizer: 128,256 tokens, adds BOS 128000, EOS 128001" in shown
    assert shown[-2] == "Ember would not run it"


def test_parts_of_a_split_model_are_listed(tmp_path: Path) -> None:
    for index in (0, 1):
        split = [raw.scalar("split.no", raw.UINT16, index), raw.scalar("split.count", raw.UINT16, 2)]
        tensors = [Tensor(f"t{index}", [8], raw.F32, bytes(32))]
        (tmp_path / f"m-{index + 1:05d}-of-00002.gguf").write_bytes(Gguf(split, tensors).to_bytes())
    shown = lines(str(tmp_path / "m-00002-of-00002.gguf"), "--tensors")
    assert shown[2].startswith(f"  part 1: {tmp_path / 'm-00001-of-00002.gguf'}")
    assert any(line.startswith("  t1") and line.endswith("of part 2") for line in shown)


def test_time_and_memory_stay_bounded_on_a_large_header(tmp_path: Path) -> None:
    """100 MB of strings and a 60 MB text: shown in seconds, with little more memory than the file."""
    file = tmp_path / "large.gguf"
    strings = raw.pair("words", raw.ARRAY, raw.array_header(raw.STRING, 1_000_000) + raw.text("w" * 92) * 1_000_000)
    file.write_bytes(Gguf([strings, raw.string("text", "x" * 60_000_000)]).to_bytes())
    code = (
        "import sys; from ember.cli.main import cli; cli.main(sys.argv[1:], standalone_mode=False);"
        "print(open('/proc/self/status').read())"
    )
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(file), "--metadata"], capture_output=True, text=True, timeout=60
    )
    assert time.perf_counter() - start < 10
    assert done.returncode == 0
    assert len(done.stdout) < 200_000
    (peak,) = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("VmHWM")]
    assert peak * 1024 < 600e6


def test_names_that_are_no_layers_are_not_gathered() -> None:
    infos = [
        {"name": name, "type": "F32", "shape": [2]} for name in ("blk.0.a", "blk.1.a", "blk.0.b", "v2.weight", "0.x")
    ]
    assert [(name, count) for name, count, _ in grouped(infos)] == [
        ("blk.*.a", 2),
        ("blk.0.b", 1),
        ("v2.weight", 1),
        ("0.x", 1),
    ]


def test_visible_keeps_letters_and_escapes_the_rest() -> None:
    assert visible("شَدّة a\tb\n\x00\u200f\ue000") == "شَدّة a\\tb\\n\\x00\\u200f\\ue000"


def test_path_that_is_not_utf8(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.gguf"))
    file.write_bytes(Gguf([raw.string("general.architecture", "llama")]).to_bytes())
    assert record(str(file))["path"].endswith("caf\\xe9.gguf")


def test_errors_reach_the_caller(tmp_path: Path) -> None:
    with pytest.raises(GGUFError):
        CliRunner().invoke(inspect, [str(tmp_path)], catch_exceptions=False)


@pytest.mark.realmodel
def test_smollm2_runs(smollm2: Path) -> None:
    found = record(str(smollm2))
    assert found["verdict"]["runs"] is True
    assert found["verdict"]["model"]["n_layers"] == 30
    assert found["verdict"]["tokenizer"] == {
        "reads": True,
        "why": None,
        "vocab_size": 49152,
        "add_bos": False,
        "bos_id": 1,
        "eos_id": 2,
        "warnings": found["verdict"]["tokenizer"]["warnings"],
    }
    assert found["values"] == 134_515_008
    assert lines(str(smollm2), "--tensors")[-2].startswith("Ember runs it as llama: 30 layers of 576, 49,152 tokens")
