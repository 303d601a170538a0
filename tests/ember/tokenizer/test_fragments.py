"""Stretches from inside a text: nothing is put before them, whatever the vocabulary does with whole texts."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ember.errors import InputError
from ember.tokenizer import Tokenizer
from tests.foundry.tokenizer_files import USER_DEFINED, VocabularyFile, byte_level, sentencepiece

Load = Callable[[VocabularyFile], Tokenizer]
LETTERS = [(letter, -100.0) for letter in "abc▁"]
PREFIXED = sentencepiece([*LETTERS, ("▁a", -1), ("ab", -2)], [("<tool>", USER_DEFINED)]).but(add_space_prefix=True)


def _pieces(tokenizer: Tokenizer, ids: list[int]) -> list[bytes]:
    return [tokenizer.token_bytes(token) for token in ids]


def test_no_space_and_no_bos_is_put_before_a_fragment(load: Load) -> None:
    tokenizer = load(PREFIXED)
    assert tokenizer.add_bos
    assert _pieces(tokenizer, tokenizer.encode("ab").ids) == [b"<s>", b" a", b"b"]
    assert _pieces(tokenizer, tokenizer.encode_fragment("ab")) == [b"ab"]
    assert _pieces(tokenizer, tokenizer.encode_fragment(" ab")) == [b" a", b"b"]
    assert tokenizer.encode_fragment("") == []


def test_after_a_spelt_token_the_space_comes_as_in_a_text(load: Load) -> None:
    tokenizer = load(PREFIXED)
    assert _pieces(tokenizer, tokenizer.encode_fragment("ab<tool>ab")) == [b"ab", b"<tool>", b" a", b"b"]
    assert _pieces(tokenizer, tokenizer.encode_fragment("<tool>ab")) == [b"<tool>", b" a", b"b"]


def test_control_tokens_are_parsed_on_request_only(load: Load) -> None:
    tokenizer = load(PREFIXED)
    assert tokenizer.encode_fragment("</s>", parse_special=True) == [tokenizer.eos_id]
    assert tokenizer.encode_fragment("</s>") != [tokenizer.eos_id]


def test_what_cannot_be_encoded_is_refused(load: Load) -> None:
    with pytest.raises(InputError, match="surrogate"):
        load(PREFIXED).encode_fragment("\ud800")


@settings(max_examples=50)
@given(st.text(max_size=12))
def test_without_a_prefix_a_fragment_is_a_text_without_bos(tiny_of: Callable[[str], Tokenizer], text: str) -> None:
    tokenizer = tiny_of("llama-bpe")
    assert tokenizer.encode_fragment(text) == tokenizer.encode(text, add_special=False).ids


def test_the_bytes_of_a_fragment_are_its_text(load: Load) -> None:
    for tokenizer in (load(PREFIXED), load(byte_level(["a b"]).but(pre="gpt-2"))):
        for text in ("كتب", " كَتَبَ", "ab ab", "😀", "كــتاب", "لا"):
            assert tokenizer.decode_bytes(tokenizer.encode_fragment(text)) == text.encode()
