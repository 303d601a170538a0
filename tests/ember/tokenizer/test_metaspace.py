"""Vocabularies whose space is `▁`: what joins, what falls back to bytes, where a space is added, what is refused."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ember.errors import InputError, TokenizerError
from ember.positions import tokens_of_span
from ember.tokenizer import Encoding, Tokenizer, load_tokenizer
from ember.tokenizer.merging import Merger, joints_of
from tests.foundry.tokenizer_files import (
    CONTROL,
    NORMAL,
    USER_DEFINED,
    VocabularyFile,
    gemma4,
    sentencepiece,
    tiny_gemma4,
    tiny_sentencepiece,
)

Load = Callable[[VocabularyFile], Tokenizer]
Tiles = Callable[[Encoding, str], bool]
LETTERS = [(letter, -100.0) for letter in "abc▁"]
BARE = sentencepiece([*LETTERS, ("▁a", -1), ("ab", -2)], [("<tool>", USER_DEFINED)]).but(add_space_prefix=False)
PREFIXED = BARE.but(add_space_prefix=True)


def _pieces(tokenizer: Tokenizer, text: str, **how: Any) -> list[bytes]:
    return [tokenizer.token_bytes(token) for token in tokenizer.encode(text, add_special=False, **how).ids]


def test_the_higher_score_joins_first(load: Load) -> None:
    file = sentencepiece([*LETTERS, ("ab", -2), ("bc", -1)]).but(add_space_prefix=False)
    assert _pieces(load(file), "abc") == [b"a", b"bc"]
    other = sentencepiece([*LETTERS, ("ab", -1), ("bc", -2)]).but(add_space_prefix=False)
    assert _pieces(load(other), "abc") == [b"ab", b"c"]


def test_of_equal_scores_the_leftmost_joins_first(load: Load) -> None:
    """Whichever token stands first in the file; ranks of pairs could not say this."""
    for entries in ([("ab", -1), ("ba", -1)], [("ba", -1), ("ab", -1)]):
        file = sentencepiece([*LETTERS, *entries]).but(add_space_prefix=False)
        assert _pieces(load(file), "aba") == [b"ab", b"a"]
        assert _pieces(load(file), "bab") == [b"ba", b"b"]


def test_one_token_from_two_sides_joins_leftmost(load: Load) -> None:
    """`aa a aa`, where both `aa|a` and `a|aa` give `aaa`: no order of pairs is right for this and for `a aa a`."""
    file = sentencepiece([*LETTERS, ("aa", -1), ("ba", -0.5), ("aaa", -2)]).but(add_space_prefix=False)
    assert _pieces(load(file), "aaaaa") == [b"aa", b"aaa"]
    assert _pieces(load(file), "aabaaa") == [b"aa", b"ba", b"aa"]


def test_t04_a_whole_word_is_no_shortcut(load: Load) -> None:
    """A token that no joining reaches is not found, whether the text is just that or not; as in llama.cpp."""
    file = sentencepiece([*LETTERS, ("abc", 5)]).but(add_space_prefix=False)
    assert _pieces(load(file), "abc") == [b"a", b"b", b"c"]
    reached = sentencepiece([*LETTERS, ("abc", 5), ("bc", -9)]).but(add_space_prefix=False)
    assert _pieces(load(reached), "abc") == [b"abc"]


def test_characters_that_are_no_tokens_may_join(load: Load) -> None:
    file = sentencepiece([*LETTERS, ("xy", -1)]).but(add_space_prefix=False)
    tokenizer = load(file)
    assert tokenizer.encode("axyb", add_special=False).ids == [file.id_of("a"), file.id_of("xy"), file.id_of("b")]
    assert tokenizer.encode("x", add_special=False).ids == [file.id_of("<0x78>")]


def test_bytes_for_what_is_no_token(load: Load) -> None:
    tokenizer = load(BARE)
    encoding = tokenizer.encode("aك a", add_special=False)

    assert encoding.ids == [BARE.id_of(one) for one in ("a", "<0xD9>", "<0x83>", "▁a")]
    assert encoding.byte_offsets == [(0, 1), (1, 2), (2, 3), (3, 5)]
    assert tokenizer.decode(encoding.ids) == "aك a"
    assert tokenizer.decode(encoding.ids[1:2]) == "\ufffd"


def test_t10_no_text_gives_a_control_token_by_joining(load: Load) -> None:
    """llama.cpp gives the control token, SentencePiece does not: its control symbols are no pieces."""
    file = sentencepiece([("<", -9), ("s", -9), (">", -9), ("<s", -1), ("x>", -1)]).but(add_space_prefix=False)
    tokenizer = load(file)
    assert _pieces(tokenizer, "<s>") == [b"<s", b">"]
    assert tokenizer.encode("<s>", add_special=False, parse_special=True).ids == [1]
    assert tokenizer.control_spellings("<s>") == ["<s>"]


def test_t10_what_looks_like_a_byte_is_text(load: Load) -> None:
    file = sentencepiece([*((one, -9) for one in "<0xA>"), ("<0", -1), ("x0", -1), ("x0A", -1), ("<0x0A", -1)])
    assert _pieces(load(file.but(add_space_prefix=False)), "<0x0A>") == [b"<0x0A", b">"]


def test_the_added_space_has_no_bytes(load: Load) -> None:
    tokenizer = load(PREFIXED)
    assert tokenizer.encode("ab") == Encoding([1, PREFIXED.id_of("▁a"), PREFIXED.id_of("b")], [(0, 0), (0, 1), (1, 2)])

    alone = tokenizer.encode("b", add_special=False)
    assert alone == Encoding([PREFIXED.id_of("▁"), PREFIXED.id_of("b")], [(0, 0), (0, 1)])
    assert tokens_of_span(alone.byte_offsets, 0, 1) == (1, 2)


def test_the_added_space_is_there_before_a_space_too(load: Load) -> None:
    encoding = load(PREFIXED).encode(" a", add_special=False)
    assert encoding == Encoding([PREFIXED.id_of("▁"), PREFIXED.id_of("▁a")], [(0, 0), (0, 2)])


def test_a_space_is_added_after_every_token_spelt_out(load: Load) -> None:
    tokenizer = load(PREFIXED)
    encoding = tokenizer.encode("a<tool>a<s>a", add_special=False, parse_special=True)
    tool, begin, a = PREFIXED.id_of("<tool>"), 1, PREFIXED.id_of("▁a")

    assert encoding == Encoding([a, tool, a, begin, a], [(0, 1), (1, 7), (7, 8), (8, 11), (11, 12)])
    assert tokenizer.decode(encoding.ids, whole=True) == "a<tool>a<s>a"
    assert tokenizer.decode(encoding.ids) == " a<tool> a<s> a"


def test_a_space_is_added_unless_the_file_says_no(load: Load) -> None:
    assert _pieces(load(BARE.but(add_space_prefix=None)), "a") == [b" a"]
    assert _pieces(load(BARE), "a") == [b"a"]
    assert load(PREFIXED).record()["space_prefix"] is True
    assert load(BARE).record()["space_prefix"] is False
    with pytest.raises(TokenizerError, match="add_space_prefix: is stored as UINT32; BOOL is expected"):
        load(BARE.but(add_space_prefix=1))


def test_a_part_of_a_text_keeps_its_space(load: Load) -> None:
    """What a model goes on to say begins with a space of its own."""
    tokenizer = load(PREFIXED)
    ids = tokenizer.encode("a a", add_special=False).ids
    assert tokenizer.decode(ids[1:]) == " a"
    assert tokenizer.decode(ids, whole=True) == "a a"
    assert tokenizer.decode([], whole=True) == ""


def test_a_space_without_a_token_falls_back_and_keeps_its_one_byte(load: Load) -> None:
    file = sentencepiece([("a", -1)]).but(add_space_prefix=False)
    encoding = load(file).encode("a a", add_special=False)
    space = [file.id_of(f"<0x{byte:02X}>") for byte in "▁".encode()]

    assert encoding.ids == [file.id_of("a"), *space, file.id_of("a")]
    assert encoding.byte_offsets == [(0, 1), (1, 2), (2, 2), (2, 2), (2, 3)]


def test_a_written_lower_block_is_a_space_to_the_model(load: Load) -> None:
    """U+2581 in the text: the same ids as a space, three bytes, and it comes back as a space; as in llama.cpp."""
    tokenizer = load(BARE)
    written, space = tokenizer.encode("b▁a", add_special=False), tokenizer.encode("b a", add_special=False)
    assert written.ids == space.ids
    assert (written.byte_offsets, space.byte_offsets) == ([(0, 1), (1, 5)], [(0, 1), (1, 3)])
    assert tokenizer.decode(written.ids) == "b a"


def test_bos_is_customary(load: Load) -> None:
    assert (load(BARE).add_bos, load(BARE).add_bos_from) == (True, "default")
    assert not load(BARE.but(add_bos_token=False)).add_bos
    nameless = load(BARE.but(bos_token_id=None))
    assert not nameless.add_bos
    assert any("no BOS is added" in warning for warning in nameless.warnings)
    assert load(BARE).encode("").ids == [1]
    assert load(PREFIXED).encode("").byte_offsets == [(0, 0)]
    assert load(PREFIXED).encode("", add_special=False).ids == []


def test_pre_means_nothing_here(load: Load) -> None:
    """llama.cpp does not read it for these; files carry `default`, or nothing."""
    for pre in ("default", None, "none-such"):
        assert _pieces(load(BARE.but(pre=pre)), "ab") == [b"ab"]
        assert load(BARE.but(pre=pre)).record()["pre"] == pre


def test_special_and_byte_tokens_stand_for_what_they_say(load: Load) -> None:
    file = sentencepiece([("▁x", -1)], [("▁tag", USER_DEFINED), ("▁un", 5)])
    tokenizer = load(file)
    stands = {token: tokenizer.token_bytes(file.id_of(token)) for token in ("▁x", "▁tag", "▁un", "<s>", "<0x0A>")}
    assert stands == {"▁x": b" x", "▁tag": "▁tag".encode(), "▁un": b" un", "<s>": b"<s>", "<0x0A>": b"\n"}


def test_the_hash_is_of_scores_too(load: Load) -> None:
    other = sentencepiece([*LETTERS, ("▁a", -1), ("ab", -3)], [("<tool>", USER_DEFINED)]).but(add_space_prefix=False)
    assert load(BARE).record()["sha256"] == load(BARE.but(bos_token_id=2)).record()["sha256"]
    assert load(BARE).record()["sha256"] != load(other).record()["sha256"]


# -- Gemma 4


GEMMA = gemma4(["a b", "▁ a", "b c", "\n \n", "\n\n \n"], [("\n" * 6, NORMAL), ("<|turn>", CONTROL)])


def test_gemma4_merges_by_rank_not_by_score(load: Load) -> None:
    tokenizer = load(GEMMA.but(scores=[-1000.0] * len(GEMMA.tokens)))
    assert _pieces(tokenizer, "abc a") == [b"ab", b"c", b" a"]
    assert tokenizer.encode("abc a", add_special=False).byte_offsets == [(0, 2), (2, 3), (3, 5)]


def test_gemma4_a_run_of_newlines_is_one_token_if_it_can_be(load: Load) -> None:
    tokenizer = load(GEMMA)
    assert _pieces(tokenizer, "a" + "\n" * 6 + "a") == [b"a", b"\n" * 6, b"a"]
    assert _pieces(tokenizer, "\n" * 5) == [b"\n" * 2, b"\n" * 3]


def test_gemma4_nothing_joins_across_the_border_of_newlines(load: Load) -> None:
    file = gemma4(["\n a", "▁ a", "a \n"])
    assert _pieces(load(file), "a\na") == [b"a", b"\n", b"a"]


def test_gemma4_adds_bos_whatever_the_file_says(load: Load) -> None:
    tokenizer = load(GEMMA.but(add_bos_token=False))
    assert tokenizer.encode("a").ids[0] == 1
    assert (tokenizer.add_bos, tokenizer.add_bos_from) == (True, "default")
    assert any("add_bos_token is false, but model gemma4 needs a BOS" in warning for warning in tokenizer.warnings)
    assert not tokenizer.with_add_bos(False).add_bos
    says_so = load(GEMMA.but(add_bos_token=True))
    assert (says_so.add_bos, says_so.add_bos_from, says_so.warnings) == (True, "file", ())
    assert load(GEMMA).add_bos_from == "default"


def test_t10_gemma4_turn_markers_typed_normal_are_warned_of(load: Load) -> None:
    file = gemma4(["a b"], [("<|turn>", NORMAL), ("<turn|>", NORMAL), ("<|image|>", NORMAL), ("<b>", NORMAL)])
    (warning,) = load(file).warnings
    named = ", ".join(f"{file.id_of(entry)} {entry!r}" for entry in ("<|turn>", "<turn|>", "<|image|>"))
    assert warning.startswith(f"3 tokens ({named}): typed NORMAL though spelt like control tokens")


# -- what is refused


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (BARE.but(scores=None), "scores: absent; model llama joins what gives the token of the highest score"),
        (BARE.but(scores=[1.0, 2.0]), f"scores: 2 entries for {len(BARE.tokens)} tokens"),
        (BARE.but(scores=[1] * len(BARE.tokens)), r"scores: is stored as ARRAY\[INT32\]; ARRAY\[FLOAT32\]"),
        (BARE.but(scores=[float("nan")] * len(BARE.tokens)), "scores: token 0 has the score NaN"),
        (replace(GEMMA, merges=None), "merges: absent or empty; model gemma4 is BPE, which needs them"),
        (replace(GEMMA, merges=[]), "merges: absent or empty"),
    ],
)
def test_lists_refused_at_once(load: Load, file: VocabularyFile, says: str) -> None:
    with pytest.raises(TokenizerError, match=says):
        load(file)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (replace(BARE, tokens=[*BARE.tokens[:-1], "ab"]), "tokens: 'ab' stands twice"),
        (replace(BARE, tokens=[*BARE.tokens[:-1], b"\xff"]), r"b'\\xff', is not UTF-8"),
        (replace(GEMMA, merges=["a b", "ab zz"]), "merge 1, 'ab' with 'zz', needs 'zz', which is no token"),
        (replace(GEMMA, merges=["a b", "c a"]), "merge 1, 'c' with 'a', needs 'ca', which is no token"),
        (replace(GEMMA, merges=["a b c"]), "merges: 'a b c' is not a pair"),
        (
            sentencepiece([("a", -1)], with_bytes=False).but(add_space_prefix=True),
            "add_space_prefix: a space is put before each text, but neither '▁' nor its bytes are tokens",
        ),
    ],
)
def test_lists_refused_before_the_first_text(load: Load, file: VocabularyFile, says: str) -> None:
    tokenizer = load(file)
    with pytest.raises(TokenizerError, match=says):
        tokenizer.encode("a")


def test_characters_without_tokens_or_bytes(load: Load) -> None:
    file = sentencepiece(LETTERS, with_bytes=False).but(add_space_prefix=False)
    assert _pieces(load(file), "a b") == [b"a", b" ", b"b"]
    with pytest.raises(InputError, match=r"text: U\+0643 at character 1 cannot be encoded: .* its byte 0xD9"):
        load(file).encode("aك")
    no_space = sentencepiece([("a", -1)], with_bytes=False).but(add_space_prefix=False)
    with pytest.raises(InputError, match=r"text: U\+0020 at character 1 cannot be encoded"):
        load(no_space).encode("a a")


# -- the merging itself


@given(
    text=st.text("abc", max_size=30),
    tokens=st.dictionaries(st.text("abc", min_size=2, max_size=5), st.integers(0, 3), max_size=20),
)
@settings(max_examples=300, deadline=None)
def test_merging_is_the_plain_loop(text: str, tokens: dict[str, int]) -> None:
    """Join the best pair, the leftmost of equals, until none is left; and cutting into words changes nothing."""
    symbols = list(text)
    while pairs := [(tokens[a + b], at) for at, (a, b) in enumerate(pairwise(symbols)) if a + b in tokens]:
        _, at = min(pairs)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    merger = Merger({token: float(rank) for token, rank in tokens.items()}, "", joints_of(tokens))

    assert (merger.merge(text) if text else []) == symbols
    assert [symbol for word in merger.words(text) for symbol in merger.merge(word)] == symbols
    assert "".join(merger.words(text)) == text


@given(text=st.text())
@settings(max_examples=100, deadline=None)
def test_any_text_is_tiled_and_comes_back(text: str, of_metaspace: list[Tokenizer], tiles: Tiles) -> None:
    for tokenizer in of_metaspace:
        for parse_special in (False, True):
            encoding = tokenizer.encode(text, parse_special=parse_special)
            bare = tokenizer.encode(text, add_special=False, parse_special=parse_special)
            assert tiles(encoding, text)
            assert tokenizer.decode(bare.ids, whole=True) == text.replace("▁", " ")


@pytest.fixture(scope="module")
def of_metaspace(tmp_path_factory: pytest.TempPathFactory, metaspace_merges: list[str]) -> list[Tokenizer]:
    folder = tmp_path_factory.mktemp("metaspace")
    files = [tiny_sentencepiece(metaspace_merges, prefix=prefix) for prefix in (True, False)]
    files.append(tiny_gemma4(metaspace_merges))
    return [load_tokenizer(file.write(folder / f"{at}.gguf")) for at, file in enumerate(files)]


# -- time


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["ا" * 200_000, " " * 200_000, "\n" * 50_000, "ab" * 100_000, "كِتاب" * 40_000])
def test_t20_long_runs(of_metaspace: list[Tokenizer], tiles: Tiles, text: str) -> None:
    for tokenizer in of_metaspace:
        encoding = tokenizer.encode(text, add_special=False)
        assert tiles(encoding, text)
        assert tokenizer.decode(encoding.ids, whole=True) == text


def test_t20_a_run_that_all_may_join_takes_seconds_at_most(load: Load) -> None:
    """No cut anywhere: 200,000 characters are one word."""
    run = [("a" * length, -float(length)) for length in range(2, 17)]
    tokenizer = load(sentencepiece([("a", -100.0), *run]).but(add_space_prefix=False))
    start = time.process_time()
    ids = tokenizer.encode("a" * 200_000, add_special=False).ids
    assert len(ids) == 200_000 // 16
    assert time.process_time() - start < 5


@pytest.mark.slow
def test_a_vocabulary_of_262k_is_ready_in_seconds(shared: Path) -> None:
    path = shared / "vocab" / "ggml-vocab-gemma-4.gguf"
    start = time.process_time()
    tokenizer = load_tokenizer(path)
    opened = time.process_time() - start
    tokenizer.encode("كتب")
    assert opened < 0.3
    assert time.process_time() - start < 5


@pytest.mark.realmodel
def test_gemma3_is_ready_in_seconds_and_has_its_oddities(gemma3: Tokenizer) -> None:
    assert (gemma3.vocab_size, gemma3.bos_id, gemma3.eos_id, gemma3.add_bos) == (262144, 2, 1, True)
    assert gemma3.encode("كتب") == Encoding([2, 38693], [(0, 0), (0, 6)])
    assert gemma3.encode("كِتاب").ids == [2, 237005, 237772, 11642]
    assert gemma3.encode("a  b\n\n").byte_offsets == [(0, 0), (0, 1), (1, 3), (3, 4), (4, 6)]
    assert len(gemma3.warnings) == 0
