"""Targets by bytes, ids, empty prompts, NFC on request."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.stimuli.drafts import MAX_LISTED, Draft, fail, find_target, finish

DEFINITE = "قرأت الكتاب ثم كتاب"


def draft(prompt, target=None, occurrence=None, **more):
    return Draft(where="x", id="s", prompt=prompt, labels={}, target=target, occurrence=occurrence, **more)


def test_a_unique_target_is_found_in_bytes():
    target = find_target(draft("🦙 وكتابٌ هنا", "كتابٌ"))
    assert (target.text, target.start, target.end) == ("كتابٌ", 7, 17)


def test_a_bare_form_inside_the_definite_one_is_ambiguous():
    """T15: `find` would return the first hit, inside another word."""
    with pytest.raises(ConfigError, match=r"occurs 2 times .*choose one with `occurrence`"):
        find_target(draft(DEFINITE, "كتاب"))
    second = find_target(draft(DEFINITE, "كتاب", 2))
    assert DEFINITE.encode()[second.start :].decode() == "كتاب"
    first = find_target(draft(DEFINITE, "كتاب", 1))
    assert DEFINITE.encode()[: first.start].decode() == "قرأت ال"


def test_absent_targets_are_refused():
    with pytest.raises(ConfigError, match="does not occur in the prompt"):
        find_target(draft("كِتَاب", "كتاب"))  # marks are not stripped
    with pytest.raises(ConfigError, match="does not occur"):
        find_target(draft("\u0623ب", "\u0627\u0654ب"))  # normal forms are not unified
    with pytest.raises(ConfigError, match="found occurrence 3, but the target 'كتاب' occurs 2 times"):
        find_target(draft(DEFINITE, "كتاب", 3))


def test_overlapping_occurrences_count():
    with pytest.raises(ConfigError, match="occurs 2 times"):
        find_target(draft("ababa", "aba"))
    assert find_target(draft("ababa", "aba", 2)).start == 2


def test_known_places_are_not_searched():
    assert find_target(draft("aa", "a", places=((1, 2),))).start == 1


def test_an_occurrence_needs_a_target():
    with pytest.raises(ConfigError, match="without a target"):
        find_target(draft("a", None, 1))
    with pytest.raises(ConfigError, match="the target is empty"):
        find_target(draft("a", ""))


words = st.text("كتابَّ a🦙\u0654", min_size=1, max_size=8)


@given(words, words, words)
def test_targets_slice_to_their_text(before, target, after):
    prompt = before + target + after
    found = [find_target(draft(prompt, target, n)) for n in range(1, count(prompt, target) + 1)]
    assert all(prompt.encode()[t.start : t.end].decode() == target for t in found)
    assert len(before.encode()) in [t.start for t in found]


def count(text, wanted):
    return sum(text.startswith(wanted, at) for at in range(len(text)))


def named(*ids, prompt="p"):
    return [Draft(where=f"f:{i}", id=name, prompt=prompt, labels={}) for i, name in enumerate(ids, start=2)]


def test_ids_given_twice_name_both_places():
    with pytest.raises(ConfigError, match="f:4: stimulus 'a': this id is already used at f:2"):
        finish(named("a", "b", "a"), "exact")


@pytest.mark.parametrize("bad", ["", "  ", "a\nb", "a\x00", "a\u2028"])
def test_ids_are_visible_text_on_one_line(bad):
    with pytest.raises(ConfigError, match="expected visible text on one line"):
        finish(named(bad), "exact")


def test_empty_prompts_are_refused_with_their_ids():
    """T22; a single space is a prompt."""
    with pytest.raises(ConfigError) as caught:
        finish(named("a", "b", prompt=""), "exact")
    assert str(caught.value) == (
        "f:2: stimulus 'a': the prompt is empty; give it a text\nf:3: stimulus 'b': the prompt is empty; give it a text"
    )
    assert finish(named("a", prompt=" "), "exact")[0].prompt == " "


@pytest.mark.parametrize("expected", ["", " ", "\n"])
def test_expecting_nothing_is_refused(expected):
    with pytest.raises(ConfigError, match="expected more than white space"):
        finish([draft("p", expected=expected)], "exact")


def test_long_lists_of_problems_are_cut():
    with pytest.raises(ConfigError) as caught:
        fail(f"problem {i}" for i in range(100))
    lines = str(caught.value).splitlines()
    assert len(lines) == MAX_LISTED + 1
    assert lines[-1] == "… and 80 more problems of this kind"


SHADDA_FIRST = "ش\u0651\u064e"  # as typed
VOWEL_FIRST = "ش\u064e\u0651"  # as NFC orders it


def test_texts_are_used_as_given():
    """T11, T12, T13: no silent normalisation, nothing stripped."""
    for text in (SHADDA_FIRST, "\u0627\u0654", "\ufefb", "ab\u200f", "كتــاب", "\ufeffx", "a\r\n", "  a  "):
        (stimulus,) = finish([draft(text)], "exact")
        assert stimulus.prompt == text
        assert stimulus.original is None


def test_nfc_on_request_keeps_both_texts():
    (stimulus,) = finish([draft(f"a{SHADDA_FIRST}b", expected=SHADDA_FIRST)], "exact", ["nfc"])
    assert stimulus.prompt == f"a{VOWEL_FIRST}b"
    assert stimulus.original == f"a{SHADDA_FIRST}b"
    assert stimulus.expected == VOWEL_FIRST
    (same,) = finish([draft("abc")], "exact", ["nfc"])
    assert same.original is None


def test_nfc_moves_the_target_with_its_text():
    (stimulus,) = finish([draft("\u0627\u0654 كتاب", "كتاب")], "exact", ["nfc"])
    assert stimulus.prompt == "\u0623 كتاب"
    target = stimulus.target
    assert stimulus.prompt.encode()[target.start : target.end].decode() == "كتاب"


def test_nfc_that_joins_the_target_s_edge_is_refused():
    with pytest.raises(ConfigError, match="NFC joins the edge of the target"):
        finish([draft("\u0627\u0654", "\u0627")], "exact", ["nfc"])


@given(words, words, words)
def test_normalised_targets_slice_to_normalised_text(before, target, after):
    if count(before + target + after, target) > 1:
        return
    try:
        (stimulus,) = finish([draft(before + target + after, target)], "exact", ["nfc"])
    except ConfigError:
        return
    found = stimulus.prompt.encode()[stimulus.target.start : stimulus.target.end].decode()
    assert found == stimulus.target.text == unicodedata.normalize("NFC", target)
