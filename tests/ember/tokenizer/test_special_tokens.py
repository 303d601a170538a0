"""BOS, and tokens spelt out in a text; what llama.cpp does with the overlaps is in the recordings."""

from collections.abc import Callable

import pytest

from ember.errors import InputError
from ember.tokenizer import Tokenizer
from tests.foundry.tokenizer_files import CONTROL, UNKNOWN, USER_DEFINED, VocabularyFile, byte_level

Load = Callable[[VocabularyFile], Tokenizer]
EXTRAS = [("<|begin|>", CONTROL), ("<unk>", UNKNOWN), ("<tool>", USER_DEFINED), ("aXb", USER_DEFINED), ("XbY", CONTROL)]
FILE = byte_level(["a b"], extras=EXTRAS)
BOS = FILE.id_of("<|begin|>")


@pytest.mark.parametrize(
    ("pre", "says", "adds", "rule"),
    [
        ("gpt-2", None, False, "default"),
        ("smollm", None, False, "default"),
        ("qwen2", None, False, "default"),
        ("llama-bpe", None, True, "default"),
        ("llama3", None, True, "default"),
        ("llama-bpe", False, False, "file"),
        ("gpt-2", True, True, "file"),
    ],
)
def test_bos_follows_the_file_or_llama_cpp_default(
    load: Load, pre: str, says: bool | None, adds: bool, rule: str
) -> None:
    tokenizer = load(FILE.but(pre=pre, bos_token_id=BOS, add_bos_token=says))
    ab = FILE.id_of("ab")

    assert (tokenizer.add_bos, tokenizer.add_bos_from) == (adds, rule)
    assert tokenizer.encode("ab").ids == ([BOS, ab] if adds else [ab])
    assert tokenizer.encode("ab").byte_offsets == ([(0, 0), (0, 2)] if adds else [(0, 2)])
    assert tokenizer.encode("ab", add_special=False).ids == [ab]
    assert (tokenizer.record()["add_bos"], tokenizer.record()["add_bos_from"]) == (adds, rule)


def test_bos_is_never_doubled(load: Load) -> None:
    tokenizer = load(FILE.but(pre="llama-bpe", bos_token_id=BOS))
    ab = FILE.id_of("ab")

    encoding = tokenizer.encode("<|begin|>ab", parse_special=True)
    assert (encoding.ids, encoding.byte_offsets) == ([BOS, ab], [(0, 9), (9, 11)])
    assert tokenizer.encode("<|begin|>ab").ids.count(BOS) == 1


def test_bos_by_the_caller(load: Load) -> None:
    tokenizer = load(FILE.but(bos_token_id=BOS))
    with_bos = tokenizer.with_add_bos(True)

    assert with_bos.encode("ab").ids == [BOS, FILE.id_of("ab")]
    assert with_bos.record()["add_bos_from"] == "override"
    assert not tokenizer.add_bos
    assert not with_bos.with_add_bos(False).add_bos
    with pytest.raises(InputError, match="a BOS is asked for, but the file names none"):
        load(FILE).with_add_bos(True)


def test_no_eos_is_appended(load: Load) -> None:
    tokenizer = load(FILE.but(eos_token_id=BOS, add_eos_token=True))

    assert tokenizer.encode("ab").ids == [FILE.id_of("ab")]
    assert "tokenizer.ggml.add_eos_token is true: Ember appends no EOS to a prompt" in tokenizer.warnings


def test_user_defined_tokens_are_found_in_any_text(load: Load) -> None:
    tokenizer = load(FILE)
    tool = FILE.id_of("<tool>")

    encoding = tokenizer.encode("ab<tool><tool> ")
    assert encoding.ids == [FILE.id_of("ab"), tool, tool, FILE.id_of("Ġ")]
    assert encoding.byte_offsets == [(0, 2), (2, 8), (8, 14), (14, 15)]
    assert tokenizer.encode("<tool>").ids == [tool]


def test_unknown_tokens_are_found_only_when_parsing(load: Load) -> None:
    tokenizer = load(FILE)
    assert tokenizer.encode("<unk>", parse_special=True).ids == [FILE.id_of("<unk>")]
    assert len(tokenizer.encode("<unk>").ids) == 5
    assert tokenizer.is_special(FILE.id_of("<unk>"))
    assert not tokenizer.is_special(FILE.id_of("<tool>"))


def test_of_overlapping_spellings_the_longer_wins_then_the_lower_id(load: Load) -> None:
    tokenizer = load(FILE)
    assert tokenizer.encode("aXbY", parse_special=True).ids == [FILE.id_of("aXb"), FILE.id_of("Y")]
    longer = byte_level(["a b"], extras=[("aXb", USER_DEFINED), ("XbYY", CONTROL)])
    assert load(longer).encode("aXbYY", parse_special=True).ids == [longer.id_of("a"), longer.id_of("XbYY")]


def test_a_cut_of_a_special_token_ends_words(load: Load) -> None:
    """White space before a spelt-out token is at the end of its own stretch, as in llama.cpp."""
    file = byte_level(["Ġ Ġ"], extras=[("<tool>", USER_DEFINED)])
    assert load(file).encode("  <tool>  x").ids == [
        file.id_of("ĠĠ"),
        file.id_of("<tool>"),
        file.id_of("Ġ"),
        file.id_of("Ġ"),
        file.id_of("x"),
    ]
