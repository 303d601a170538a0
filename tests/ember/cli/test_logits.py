"""`ember logits`: the likeliest tokens of each prompt, and all logits with their origin."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ember
from tests.foundry import commands
from tests.foundry.tiny import tiny_llama
from tests.foundry.vocab import tiny_vocabulary

NANO = "builtin:sarf-nano"
PROMPTS = ("الجذر ك ت ب على وزن", "اسم")

call = partial(commands.call, command="logits")
record = partial(commands.record, command="logits")


def test_the_likeliest_tokens_are_those_of_the_logits(capfdbinary) -> None:
    model = ember.open(NANO)
    expected = model.logits(list(PROMPTS)).astype(np.float64)
    found = record(capfdbinary, NANO, *PROMPTS, "--top", "430")
    for prompt, row, mine in zip(PROMPTS, expected, found["prompts"], strict=True):
        assert mine["prompt"] == prompt
        order = sorted(range(len(row)), key=lambda token, row=row: (-row[token], token))
        assert [one["token_id"] for one in mine["top"]] == order
        log_probabilities = row - row.max() - np.log(np.exp(row - row.max()).sum())
        for one in mine["top"]:
            assert one["logit"] == row[one["token_id"]]
            assert one["log_probability"] == pytest.approx(log_probabilities[one["token_id"]], abs=1e-12)
            assert bytes.fromhex(one["bytes"]) == model.tokenizer.token_bytes(one["token_id"])
        assert sum(np.exp(one["log_probability"]) for one in mine["top"]) == pytest.approx(1, abs=1e-12)


def test_pieces_that_are_no_whole_characters_are_shown_as_bytes(capfdbinary) -> None:
    pieces = {
        one["token_id"]: one["piece"] for one in record(capfdbinary, NANO, "اسم", "--top", "430")["prompts"][0]["top"]
    }
    assert pieces[220] == " "
    assert None in pieces.values()
    assert "b'\\x" in call(capfdbinary, NANO, "اسم", "--top", "430")[1]


def test_a_table_for_people(capfdbinary) -> None:
    status, out, _ = call(capfdbinary, NANO, *PROMPTS)
    first, second = out.split("\n\n")
    assert status == 0
    assert first.splitlines()[0] == repr(PROMPTS[0])
    assert len(first.splitlines()) == len(second.splitlines()) == 2 + 10
    assert first.splitlines()[2].split()[0] == "0.999938"
    assert first.splitlines()[2].endswith("' '")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_logits_are_written_with_their_origin(capfdbinary, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"l{suffix}"
    found = record(capfdbinary, NANO, *PROMPTS, "--out", str(out))
    assert (found["out"], found["origin"], found["shape"]) == (str(out), f"{out}.json", [2, 430])
    assert [one["top"] for one in found["prompts"]] == [[], []]
    written = np.load(out) if suffix == ".npy" else np.load(out)["after_logits"]
    assert np.array_equal(written, ember.open(NANO).logits(list(PROMPTS)))
    assert json.loads(Path(f"{out}.json").read_text())["model_sha256"].startswith("ba62f4bc")
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name, f"{out.name}.json"]
    told = call(capfdbinary, NANO, *PROMPTS, "--out", str(out), "--top", "1")[1]
    assert "0.999938" in told
    assert told.endswith(f"after_logits [2, 430] float32\nwritten to {out}\n")


def test_rows_of_the_head_without_a_token_can_be_likeliest(capfdbinary, tmp_path: Path) -> None:
    """A vocabulary of fewer tokens than the head has rows: such ids are shown without a piece."""
    none = dict.fromkeys(f"tokenizer.ggml.{key}" for key in ("bos_token_id", "eos_token_id", "token_type"))
    fewer = {"tokenizer.ggml.tokens": tiny_vocabulary(320).tokens[:318]}
    path = tiny_llama(tmp_path / "m.gguf", seed=2, vocab=320, metadata=none | fewer)
    status, out, _ = call(capfdbinary, str(path), "a", "--top", "320", "--json")
    found = {one["token_id"]: one for one in json.loads(out)["prompts"][0]["top"]}
    assert status == 0
    assert len(found) == 320
    assert [(found[token]["piece"], found[token]["bytes"]) for token in (318, 319)] == [(None, "")] * 2
    assert call(capfdbinary, str(path), "a", "--top", "320")[0] == 0


@pytest.mark.parametrize("out", ["l.txt", "nowhere/l.npy", "."])
def test_a_file_that_cannot_be_is_refused_before_anything_runs(capfdbinary, tmp_path: Path, out: str) -> None:
    status, told, err = call(capfdbinary, "/nowhere/model.gguf", "a", "--out", str(tmp_path / out))
    assert (status, told) == (2, "")
    assert err.startswith("error: --out ")
    assert list(tmp_path.iterdir()) == []
