"""Decoding, facts, the record, and what is built when."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember
from ember.gguf import open_gguf
from ember.tokenizer import Encoding, Tokenizer, load_tokenizer
from tests.foundry.tokenizer_files import CONTROL, NORMAL, UNUSED, VocabularyFile, byte_level, tiny

Load = Callable[[VocabularyFile], Tokenizer]
PRES = ("gpt-2", "llama-bpe", "smollm", "qwen2")
FILE = byte_level(["a b"], extras=[("<|end|>", CONTROL), ("Ġpad", UNUSED), ("▁x", NORMAL), ("é!", CONTROL)])


@pytest.mark.parametrize("pre", PRES)
@given(text=st.text())
@settings(max_examples=60, deadline=None)
def test_any_text_is_tiled_and_comes_back(tiny_of: Any, tiles: Any, pre: str, text: str) -> None:
    tokenizer: Tokenizer = tiny_of(pre)
    for parse_special in (False, True):
        encoding = tokenizer.encode(text, parse_special=parse_special)
        assert tiles(encoding, text)
        bare = tokenizer.encode(text, add_special=False, parse_special=parse_special)
        assert tokenizer.decode(bare.ids) == text
        assert tokenizer.decode_bytes(bare.ids) == text.encode()


@given(texts=st.lists(st.text(max_size=20), max_size=6))
@settings(max_examples=40, deadline=None)
def test_a_batch_is_its_texts_one_by_one(tiny_of: Any, texts: list[str]) -> None:
    tokenizer: Tokenizer = tiny_of("llama-bpe")
    batch = tokenizer.encode_ids(texts)
    assert [row.tolist() for row in batch] == [tokenizer.encode(text).ids for text in texts]
    assert all(row.dtype == np.int32 for row in batch)


def test_tokens_stand_for_bytes_or_for_their_spelling(load: Load) -> None:
    tokenizer = load(FILE)
    stands = {token: tokenizer.token_bytes(FILE.id_of(token)) for token in ("ab", "Ġ", "Ċ", "ď")}

    assert stands == {"ab": b"ab", "Ġ": b" ", "Ċ": b"\n", "ď": b"\x0f"}
    assert [tokenizer.token_bytes(FILE.id_of(token)) for token in ("<|end|>", "Ġpad", "▁x", "é!")] == [
        b"<|end|>",
        "Ġpad".encode(),
        "▁x".encode(),
        "é!".encode(),
    ]
    assert sorted(tokenizer.token_bytes(token) for token in range(256)) == sorted(bytes([byte]) for byte in range(256))


def test_half_a_letter_decodes_to_the_replacement_character(load: Load) -> None:
    tokenizer = load(FILE)
    first, second = tokenizer.encode("ك").ids

    assert tokenizer.decode([first]) == "\ufffd"
    assert tokenizer.decode([second, first]) == "\ufffd\ufffd"
    assert tokenizer.decode_bytes([first]) == "ك".encode()[:1]
    assert tokenizer.decode(np.array([first, second])) == "ك"
    assert tokenizer.decode([]) == ""


def test_facts(load: Load) -> None:
    end = FILE.id_of("<|end|>")
    tokenizer = load(FILE.but(bos_token_id=0, eos_token_id=end, eot_token_id=end, eom_token_id=1))

    assert tokenizer.vocab_size == len(FILE.tokens)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.stop_ids) == (0, end, (end, 1))
    assert tokenizer.is_special(end)
    assert not tokenizer.is_special(0)
    assert tokenizer.check_ids([0, end]).dtype == np.int32
    assert tokenizer.warnings == ()
    assert f"pre='gpt-2', {len(FILE.tokens)} tokens" in repr(tokenizer)


def test_special_ids_that_the_file_does_not_name_are_none(load: Load) -> None:
    tokenizer = load(FILE)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.stop_ids) == (None, None, ())


def test_oddities_are_warned_of(load: Load) -> None:
    file = replace(FILE, types=None, tokens=[*FILE.tokens, "", ""], merges=["a b", "a b"])
    tokenizer = load(file)

    assert tokenizer.encode("ab").ids == [FILE.id_of("ab")]
    assert [warning.split(":")[0] for warning in tokenizer.warnings] == [
        "tokenizer.ggml.token_type is absent",
        f"1 tokens ({FILE.id_of('<|end|>')} '<|end|>')",
        f"2 tokens, {len(FILE.tokens)} the first, have no spelling",
        "1 merges stand more than once",
    ]


def test_of_a_merge_that_stands_twice_the_first_counts(load: Load) -> None:
    file = byte_level(["a b", "b c", "a b"], extras=())
    assert load(file).encode("abc").ids == [file.id_of("ab"), file.id_of("c")]


def test_record(load: Load) -> None:
    file = FILE.but(bos_token_id=0, pre="llama3")
    record = load(file).record()

    assert {name: record[name] for name in ("model", "pre", "pre_tokenizer", "unicode", "vocab_size")} == {
        "model": "gpt2",
        "pre": "llama3",
        "pre_tokenizer": "llama-bpe",
        "unicode": "15.1",
        "vocab_size": len(FILE.tokens),
    }
    assert record["special_ids"] == {"bos": 0}
    assert record["tokenizers_version"].count(".") == 2
    assert record["warnings"] == []


def test_the_hash_is_of_tokens_merges_and_types(load: Load) -> None:
    def digest(file: VocabularyFile) -> str:
        found: str = load(file).record()["sha256"]
        return found

    types = list(FILE.types or ())
    others = [
        replace(FILE, merges=["b a"]),
        replace(FILE, types=[*types[:-1], NORMAL]),
        replace(FILE, tokens=[*FILE.tokens[:-1], "ë"]),
        replace(FILE, tokens=[*FILE.tokens[:-2], "▁xé!", ""]),
    ]
    assert digest(FILE) == digest(FILE.but(bos_token_id=1))
    assert len({digest(FILE), *map(digest, others)}) == len(others) + 1


def test_facts_and_decoding_build_no_merges(load: Load) -> None:
    broken = load(replace(FILE, merges=["a b", "zz zz"]))

    assert broken.decode([FILE.id_of("a")]) == "a"
    assert broken.record()["vocab_size"] == len(FILE.tokens)
    assert "_encoder" not in broken.__dict__


def test_package_exports(tmp_path: Path) -> None:
    path = FILE.write(tmp_path / "v.gguf")

    assert ember.load_tokenizer is load_tokenizer
    assert (ember.Tokenizer, ember.Encoding) == (Tokenizer, Encoding)
    assert ember.load_tokenizer(str(path)).encode("ab") == load_tokenizer(open_gguf(path)).encode("ab")
    assert len(ember.load_tokenizer(path).encode("ab")) == 1
    assert "tokenizers" in sys.modules


def test_tiny_vocabulary_is_worth_recording(merges: list[str]) -> None:
    assert len(merges) == 700
    assert len(tiny(merges, "gpt-2").tokens) == 256 + 700 + 3 + 10


@pytest.mark.realmodel
def test_smollm2_is_ready_in_half_a_second(smollm2: Path) -> None:
    load_tokenizer(smollm2).encode("the engine's module is imported")
    start = time.process_time()
    load_tokenizer(smollm2).encode("كتب")
    assert time.process_time() - start < 0.5


def test_a_vocabulary_of_128k_is_ready_in_seconds(shared: Path) -> None:
    path = shared / "vocab" / "ggml-vocab-llama-bpe.gguf"
    start = time.process_time()
    tokenizer = load_tokenizer(path)
    opened = time.process_time() - start
    tokenizer.encode("كتب")
    assert opened < 0.3
    assert time.process_time() - start < 3
