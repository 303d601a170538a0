"""The text of a continuation as it comes: pieces that add up, whole characters, nothing of a stop text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ember.errors import InputError
from ember.generate import TextStream, check_stop


class Bytes:
    """A tokenizer whose tokens are bytes; 256 is a token that ends texts."""

    def decode_bytes(self, ids: list[int]) -> bytes:
        return b"".join(bytes([one]) if one < 256 else b"<end>" for one in ids)


def stream(data: bytes, stop: list[str], *, ends: bool = False) -> tuple[str, list[tuple[int, str]], int]:
    """Feed bytes one by one: whole text, what was told, and how many bytes were taken before a stop text."""
    told: list[tuple[int, str]] = []
    tokenizer: Any = Bytes()
    text = TextStream(tokenizer, stop, (256,), lambda token, piece: told.append((token, piece)))
    ids: list[int] = []
    for token in [*data, *([256] if ends else [])]:
        ids.append(token)
        if text.take(0, token, ids):
            break
    return text.finish(), told, len(ids)


def test_a_letter_is_told_when_it_is_whole() -> None:
    text, told, _ = stream("كa".encode(), [])
    assert text == "كa"
    assert told == [(0xD9, ""), (0x83, "ك"), (ord("a"), "a")]


def test_half_a_letter_at_the_end_becomes_a_replacement() -> None:
    text, told, _ = stream("aك".encode()[:-1], [])
    assert text == "a\ufffd"
    assert told == [(ord("a"), "a"), (0xD9, ""), (-1, "\ufffd")]


def test_what_may_become_a_stop_text_is_held_back() -> None:
    text, told, taken = stream(b"a\nb\n\nc", ["\n\n"])
    assert (text, taken) == ("a\nb", 5)
    assert [piece for _, piece in told] == ["a", "", "\nb", "", ""]
    text, told, taken = stream(b"a\n", ["\n\n"])
    assert (text, taken) == ("a\n", 2)
    assert told == [(97, "a"), (10, ""), (-1, "\n")]


def test_the_first_of_several_stop_texts_ends_the_text() -> None:
    assert stream(b"one two three", ["three", "two", "xyz"])[0] == "one "
    assert stream(b"aab", ["ab", "b"])[0] == "a"
    assert stream(b"stop", ["stop"])[0] == ""


def test_the_token_that_ends_a_text_is_no_part_of_it() -> None:
    text, told, taken = stream("ab\u0643".encode(), ["b!"], ends=True)
    assert (text, taken) == ("ab\u0643", 5)
    assert "".join(piece for _, piece in told) == text
    assert [token for token, _ in told if token >= 0] == [*"ab\u0643".encode(), 256]


@given(
    st.one_of(st.binary(max_size=30), st.text(alphabet="aبn\n👩", max_size=12).map(str.encode)),
    st.lists(st.text(alphabet="aبn\n👩", min_size=1, max_size=4), max_size=3),
    st.booleans(),
)
def test_pieces_add_up_to_the_text_and_show_nothing_that_is_taken_back(
    data: bytes, stop: list[str], ends: bool
) -> None:
    text, told, taken = stream(data, stop, ends=ends)
    assert "".join(piece for _, piece in told) == text
    assert [token for token, _ in told if token >= 0] == [*data, *([256] if ends else [])][:taken]
    assert not any(one in text for one in stop)
    # the stop text that is whole first ends the text, also where another began before it
    seen = next((data[:end] for end in range(len(data) + 1) if any(one.encode() in data[:end] for one in stop)), data)
    found = [at for at in (seen.find(one.encode()) for one in stop) if at >= 0]
    assert text == seen[: min(found, default=len(seen))].decode(errors="replace")


def test_half_a_character_is_no_stop_text() -> None:
    with pytest.raises(InputError, match=r"^stop 'a\\ud800': a lone surrogate, U\+D800, at character 1"):
        check_stop(["a\ud800"])


def test_the_stop_text_that_is_whole_first_ends_the_text() -> None:
    assert stream(b"a\na", ["a\na", "\n"])[0] == "a"


@pytest.mark.parametrize("stop", ["text", [""], ["a", 1], [None]])
def test_stop_texts_are_a_list_of_texts(stop: Any) -> None:
    with pytest.raises(InputError, match="expected a list of texts that are not empty"):
        check_stop(stop)
