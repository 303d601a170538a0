"""Vocabularies and texts that are refused, each with one message that says what was found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ember.errors import GGUFError, InputError, TokenizerError, UnsupportedError
from ember.tokenizer import Tokenizer, load_tokenizer
from tests.foundry.tokenizer_files import CONTROL, NORMAL, VocabularyFile, byte_level
from tests.foundry.vocab import byte_characters

Load = Callable[[VocabularyFile], Tokenizer]
FILE = byte_level(["a b", "ab c"], extras=[("<|end|>", CONTROL)], words=())
N = len(FILE.tokens)


@pytest.mark.parametrize(
    ("keys", "error", "says"),
    [
        ({"model": None}, TokenizerError, "tokenizer.ggml.model: absent"),
        ({"model": "bert"}, UnsupportedError, "'bert' is not supported; supported: gpt2"),
        ({"model": "GPT2"}, UnsupportedError, "'GPT2' is not supported"),
        ({"model": 3}, TokenizerError, "model: is stored as UINT32; STRING is expected"),
        (
            {"pre": None},
            UnsupportedError,
            "tokenizer.ggml.pre: absent.*does not guess.*gpt-2.*llama-bpe.*qwen2.*smollm",
        ),
        ({"pre": "default"}, UnsupportedError, "'default' is not supported; supported: .*gpt-2"),
        ({"pre": "gpt2"}, UnsupportedError, "'gpt2' is not supported"),
        ({"pre": ""}, UnsupportedError, "'' is not supported"),
        ({"pre": 7}, UnsupportedError, "7 is not supported"),
        ({"add_bos_token": 1}, TokenizerError, "add_bos_token: is stored as UINT32; BOOL is expected"),
        ({"add_bos_token": True}, TokenizerError, "add_bos_token: is true, but tokenizer.ggml.bos_token_id.*absent"),
        ({"bos_token_id": "x"}, TokenizerError, "bos_token_id: is stored as STRING; an integer is expected"),
        ({"eos_token_id": 1.5}, TokenizerError, "eos_token_id: is stored as FLOAT32; an integer is expected"),
    ],
)
def test_keys(load: Load, keys: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        load(FILE.but(**keys))


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (replace(FILE, types=[NORMAL] * (N - 1)), f"token_type: {N - 1} entries for {N} tokens"),
        (replace(FILE, types=[NORMAL] * (N + 1)), f"token_type: {N + 1} entries for {N} tokens"),
        (replace(FILE, types=[NORMAL] * (N - 1) + [9]), f"token_type: token {N - 1} has type 9; 0 to 6"),
        (replace(FILE, types=[NORMAL] * (N - 1) + [-1]), f"token {N - 1} has type -1"),
        (replace(FILE, tokens=[]), "tokens: absent or empty"),
    ],
)
def test_lists_refused_at_once(load: Load, file: VocabularyFile, says: str) -> None:
    with pytest.raises(TokenizerError, match=says):
        load(file)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (replace(FILE, tokens=[*FILE.tokens[:-1], "ab"]), f"tokens: 'ab' stands twice, as token 256 and as {N - 1}"),
        (replace(FILE, tokens=[*FILE.tokens[:-1], b"\xff\xfe"]), rf"token {N - 1}, b'\\xff\\xfe', is not UTF-8"),
        (replace(FILE, merges=["a b", "ab zz"]), "merge 1, 'ab' with 'zz', needs 'zz', which is no token"),
        (replace(FILE, merges=["a b", "b c"]), "merge 1, 'b' with 'c', needs 'bc', which is no token"),
        (replace(FILE, merges=["a b", "abc"]), "merges: 'abc' is not a pair"),
        (replace(FILE, merges=["a b c"]), "merges: 'a b c' is not a pair"),
        (replace(FILE, merges=["a "]), "merges: 'a ' is not a pair"),
    ],
)
def test_lists_refused_before_the_first_text(load: Load, file: VocabularyFile, says: str) -> None:
    tokenizer = load(file)
    with pytest.raises(TokenizerError, match=says):
        tokenizer.encode("")


def test_files(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="does not exist"):
        load_tokenizer(tmp_path / "none.gguf")
    with pytest.raises(InputError, match="fetching is not supported"):
        load_tokenizer("hf://owner/model")


@pytest.mark.parametrize("value", [4294967295, N, -1])
@pytest.mark.parametrize("role", ["bos", "eos"])
def test_g18_special_ids_outside_the_vocabulary_are_none(load: Load, role: str, value: int) -> None:
    tokenizer = load(FILE.but(**{f"{role}_token_id": value, "pre": "llama-bpe"}))

    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.stop_ids) == (None, None, ())
    assert (
        f"tokenizer.ggml.{role}_token_id is {value}, outside the vocabulary of {N}: taken as none" in tokenizer.warnings
    )
    assert tokenizer.encode("abc").ids == [FILE.id_of("abc")]
    assert any("no BOS is added" in warning for warning in tokenizer.warnings)


def test_lone_surrogates(tiny_of: Callable[[str], Tokenizer]) -> None:
    with pytest.raises(InputError, match=r"text: a lone surrogate, U\+D800, at character 3"):
        tiny_of("gpt-2").encode("كتب\ud800")
    with pytest.raises(InputError, match=r"text 1: a lone surrogate, U\+DFFF, at character 0"):
        tiny_of("gpt-2").encode_ids(["a", "\udfff"])


def test_bytes_without_a_token(load: Load) -> None:
    tokens = [token for token in FILE.tokens if token != byte_characters()[0x04]]
    tokenizer = load(replace(FILE, tokens=[*tokens, "<|filler|>"]))

    assert tokenizer.encode("abc").ids == [tokens.index("abc")]
    with pytest.raises(InputError, match=r"text: U\+0004 at character 1 cannot be encoded: .* its byte 0x04"):
        tokenizer.encode("a\x04")


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([0, -1], "token id -1 at position 1; ids are 0 to 258"),
        ([259], "token id 259 at position 0"),
        ([2**40], f"token id {2**40} at position 0"),
        (np.array([2**63], np.uint64), f"token id {2**63} at position 0"),
    ],
)
def test_ids_outside_the_vocabulary(load: Load, ids: Any, says: str) -> None:
    tokenizer = load(FILE)
    assert N == 259
    for use in (tokenizer.check_ids, tokenizer.decode, tokenizer.decode_bytes):
        with pytest.raises(TokenizerError, match=says):
            use(ids)


@pytest.mark.parametrize("ids", [[0.5], [True], ["a"], [[1, 2]], 3, [None], [2**70], ["1", 2]])
def test_what_is_no_row_of_integers(load: Load, ids: Any) -> None:
    with pytest.raises(InputError, match="one row of integers is expected"):
        load(FILE).check_ids(ids)
