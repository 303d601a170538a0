"""A GGUF's tokenizer beside a `tokenizer.json`: equal ids, the first that differs, and other vocabularies (T23)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ember.errors import InputError
from ember.tokenizer import Tokenizer
from ember.tokenizer.comparison import (
    IdDifference,
    OtherTokenizer,
    Token,
    VocabularyDifference,
    first_id_difference,
    vocabulary_difference,
)
from tests.foundry.tokenizer_files import CONTROL, NORMAL, USER_DEFINED, VocabularyFile, byte_level, sentencepiece
from tests.foundry.tokenizer_json import write_byte_level

Load = Callable[[VocabularyFile], Tokenizer]
FILE = byte_level(["a b", "Ġ a"], extras=[("<|end|>", CONTROL), ("<tool>", USER_DEFINED)], words=())


def test_equal(load: Load, tmp_path: Path) -> None:
    other = OtherTokenizer(write_byte_level(FILE, tmp_path / "tokenizer.json"))
    for text in ("", "ab ab", "كِتاب\n", "a<tool>b"):
        assert first_id_difference(load(FILE), other, text) is None
    assert vocabulary_difference(load(FILE), other) == VocabularyDifference(0, None, 0, 0)


def test_the_first_difference_of_ids(load: Load, tmp_path: Path) -> None:
    fewer = byte_level(["Ġ a", "a b"], extras=[("<|end|>", CONTROL), ("<tool>", USER_DEFINED)], words=())
    other = OtherTokenizer(write_byte_level(fewer, tmp_path / "tokenizer.json"))
    found = first_id_difference(load(FILE), other, "ك ab")

    assert found == IdDifference(2, 2, Token(FILE.id_of("Ġ"), "Ġ"), Token(fewer.id_of("Ġa"), "Ġa"))


def test_one_side_ends_first(load: Load, tmp_path: Path) -> None:
    decomposed = "e\u0301"
    other = OtherTokenizer(write_byte_level(FILE, tmp_path / "tokenizer.json", nfc=True))
    longer = first_id_difference(load(FILE), other, "x" + decomposed)
    assert longer is not None
    assert (longer.index, longer.byte) == (1, 1)

    adds_bos = OtherTokenizer(write_byte_level(FILE, tmp_path / "bos.json", bos="<|end|>"))
    tokenizer = load(FILE.but(bos_token_id=FILE.id_of("<|end|>"), add_bos_token=True))
    assert first_id_difference(tokenizer, adds_bos, "ab") is None
    assert first_id_difference(tokenizer, other, "") == IdDifference(
        0, 0, Token(FILE.id_of("<|end|>"), "<|end|>"), None
    )


def test_control_tokens_are_literal_on_both_sides_unless_parsed(load: Load, tmp_path: Path) -> None:
    other = OtherTokenizer(write_byte_level(FILE, tmp_path / "tokenizer.json"))
    end = FILE.id_of("<|end|>")
    for parse_special in (False, True):
        ids = other.encode("a<|end|>", add_special=False, parse_special=parse_special)
        assert (end in ids) is parse_special
        assert first_id_difference(load(FILE), other, "a<|end|>", parse_special=parse_special) is None


def test_t23_a_sibling_of_the_same_size(load: Load, tmp_path: Path) -> None:
    end = FILE.id_of("<|end|>")
    other = OtherTokenizer(write_byte_level(FILE, tmp_path / "tokenizer.json", renamed={end: "<|eot_id|>"}))

    assert first_id_difference(load(FILE), other, "ab") is None
    assert vocabulary_difference(load(FILE), other) == VocabularyDifference(
        1, (Token(end, "<|end|>"), Token(end, "<|eot_id|>")), 0, 0
    )


def test_tokens_of_one_alone_are_counted(load: Load, tmp_path: Path) -> None:
    extras = [("<|end|>", CONTROL), ("<tool>", USER_DEFINED), ("<more>", NORMAL)]
    more = byte_level(["a b", "Ġ a"], extras=extras, words=())
    other = OtherTokenizer(write_byte_level(FILE, tmp_path / "tokenizer.json"))
    assert vocabulary_difference(load(more), other) == VocabularyDifference(0, None, 1, 0)
    larger = OtherTokenizer(write_byte_level(more, tmp_path / "more.json"))
    assert vocabulary_difference(load(FILE), larger) == VocabularyDifference(0, None, 0, 1)


def test_a_space_may_be_spelt_either_way(load: Load, tmp_path: Path) -> None:
    """Converters write Gemma's user-defined `▁▁` with spaces."""
    ours = sentencepiece([("a", -1.0)], [("  ", USER_DEFINED)])
    listed = VocabularyFile([str(token).replace(" ", "▁") for token in ours.tokens], [], ours.types)
    other = OtherTokenizer(write_byte_level(listed, tmp_path / "tokenizer.json"))
    assert vocabulary_difference(load(ours), other).count == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is no file; a Hugging Face tokenizer.json is expected"),
        ("{", "is no tokenizer.json"),
        ("{}", "is no tokenizer.json"),
    ],
)
def test_what_is_no_tokenizer_json(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=says):
        OtherTokenizer(path)
