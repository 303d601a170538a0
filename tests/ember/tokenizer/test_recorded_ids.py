"""Ids are llama.cpp's: on recorded texts, on its own test strings, for every code point, for every alias."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from ember.errors import InputError
from ember.tokenizer import Encoding, Tokenizer, load_tokenizer
from ember.tokenizer.pretokenizers import LETTER, NUMBER, PRE_TOKENIZERS
from tests.foundry.token_texts import make_texts

PRES = ("gpt-2", "llama-bpe", "smollm", "qwen2")
Tiles = Callable[[Encoding, str], bool]


def _agree(tokenizer: Tokenizer, texts: list[str], expected: list[list[int]], *, parse_special: bool) -> None:
    found = tokenizer.encode_ids(texts, add_special=False, parse_special=parse_special)
    different = [
        (text, ids.tolist(), wanted)
        for text, ids, wanted in zip(texts, found, expected, strict=True)
        if ids.tolist() != wanted
    ]
    assert not different, f"{len(different)} of {len(texts)}, the first: {different[0]}"


def test_recordings_are_of_the_texts_that_the_foundry_makes(recorded: Any) -> None:
    texts = recorded("tiny-gpt-2").texts
    arabic = [text for text in texts if any("\u0600" <= c <= "\u08ff" or "\ufb50" <= c <= "\ufefc" for c in text)]

    assert texts == make_texts()
    assert len(texts) >= 500
    assert len(arabic) * 2 >= len(texts)


@pytest.mark.parametrize("pre", PRES)
@pytest.mark.parametrize("parse_special", [False, True])
def test_tiny_vocabulary(recorded: Any, tiny_of: Callable[[str], Tokenizer], pre: str, parse_special: bool) -> None:
    record = recorded(f"tiny-{pre}")
    _agree(tiny_of(pre), record.texts, record.parsed if parse_special else record.literal, parse_special=parse_special)


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2"])
def test_real_vocabularies(recorded: Any, shared: Path, pre: str) -> None:
    record = recorded(f"real-{pre}")
    tokenizer = load_tokenizer(shared / "vocab" / f"ggml-vocab-{pre}.gguf")
    # T10: in qwen2's vocabulary `</s>` is an ordinary entry, which llama.cpp makes a control token because of its name.
    parsed = [index for index, text in enumerate(record.texts) if pre != "qwen2" or "</s>" not in text]

    _agree(tokenizer, record.texts, record.literal, parse_special=False)
    _agree(tokenizer, [record.texts[i] for i in parsed], [record.parsed[i] for i in parsed], parse_special=True)
    assert len(record.texts) - len(parsed) == (9 if pre == "qwen2" else 0)


@pytest.mark.realmodel
def test_smollm2(recorded: Any, smollm: Tokenizer) -> None:
    """Texts with bytes that SmolLM2 has no token for are refused; llama.cpp's ids of just these are short of bytes."""
    record = recorded("real-smollm")
    lossy = [smollm.decode_bytes(ids) != text.encode() for text, ids in zip(record.texts, record.literal, strict=True)]
    kept = [index for index, lost in enumerate(lossy) if not lost]

    _agree(smollm, [record.texts[i] for i in kept], [record.literal[i] for i in kept], parse_special=False)
    _agree(smollm, [record.texts[i] for i in kept], [record.parsed[i] for i in kept], parse_special=True)
    assert 0 < sum(lossy) < 25
    for text in (text for text, lost in zip(record.texts, lossy, strict=True) if lost):
        with pytest.raises(InputError, match=r"U\+[0-9A-F]{4,6} at character \d+ cannot be encoded"):
            smollm.encode(text)


@pytest.mark.parametrize("pre", PRES)
def test_recorded_texts_are_tiled(recorded: Any, tiny_of: Callable[[str], Tokenizer], tiles: Tiles, pre: str) -> None:
    tokenizer = tiny_of(pre)
    for text in recorded("tiny-gpt-2").texts:
        encoding = tokenizer.encode(text, parse_special=True)
        data = text.encode()
        assert tiles(encoding, text)
        assert all(
            tokenizer.token_bytes(token) == data[start:end]
            for token, (start, end) in zip(encoding.ids, encoding.byte_offsets, strict=True)
            if end > start
        )


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2", "llama-spm", "gemma-4"])
def test_llama_cpp_own_strings(shared: Path, name: str) -> None:
    path = shared / "vocab" / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    expected = [[int(token) for token in line.split()] for line in Path(f"{path}.out").read_text().split("\n")]

    assert len(texts) == (46 if name == "gemma-4" else 47)
    assert not any(expected[len(texts) :])
    _agree(load_tokenizer(path), texts, expected[: len(texts)], parse_special=False)


def test_every_alias_is_cut_as_llama_cpp_cuts_it(read_json: Callable[[str], Any]) -> None:
    facts = read_json("facts")

    assert facts["aliases"] == {name: kind.name for name, kind in PRE_TOKENIZERS.items()}
    assert facts["adds_bos"] == {name: kind.add_bos for name, kind in PRE_TOKENIZERS.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "pattern"), [("letter", LETTER), ("number", NUMBER), ("space", r"\s")])
def test_every_code_point_is_classed_as_in_llama_cpp(read_json: Callable[[str], Any], kind: str, pattern: str) -> None:
    """T24: whatever Unicode version the installed `tokenizers` knows."""
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    left = Split(Regex(f"{pattern}+"), "removed").pre_tokenize_str("".join(map(chr, points)))
    matched = set(points)
    for _, (start, end) in left:
        matched.difference_update(points[start:end])
    expected = {
        point
        for first, last in (one.split("-") for one in read_json("classes")[kind])
        for point in range(int(first, 16), int(last, 16) + 1)
    }

    assert matched == expected
