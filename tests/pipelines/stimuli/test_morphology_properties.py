"""What must hold for any root and pattern that have a form."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.stimuli.arabic import MARKS, read, strip_marks, write
from pipelines.stimuli.morphology import Form, MorphologyError, apply, parse_pattern
from pipelines.stimuli.patterns import PATTERNS
from pipelines.stimuli.roots import _REAL, is_harmonic, nonce_roots, real_roots, root_class
from pipelines.stimuli.translit import CONSONANTS, LONG, SHORT, arabic_root, radicals

STRONG = sorted(set(CONSONANTS) - set("ʾwy"))
VERB_ENDINGS = ("a", "u")
MORE = ("1a23", "1a2ii3", "ya12u3u", "musta12a3", "ma12a3ap", "i12a33a", "1u2ay3", "1a2A2ii3")
strong_roots = st.tuples(*[st.sampled_from(STRONG)] * 3).filter(lambda root: root[1] != root[2]).map("".join)
any_roots = st.tuples(*[st.sampled_from(sorted(CONSONANTS))] * 3).map("".join)
patterns = st.sampled_from([*(pattern.slots for pattern in PATTERNS.values()), *MORE])


def formed(root: str, pattern: str) -> Form | None:
    try:
        return apply(root, pattern)
    except MorphologyError:
        return None


@given(strong_roots, patterns)
def test_strong_radicals_stand_in_the_order_of_the_slots(root: str, pattern: str) -> None:
    form = formed(root, pattern)
    if form is None or form.rules:
        return
    letters = dict(zip("123", root, strict=True))
    expected = "".join(letters.get(token, token) for token in parse_pattern(pattern))
    assert form.translit == expected
    assert [form.translit[at] for at, token in enumerate(parse_pattern(pattern)) if token.isdigit()] == [
        letters[token] for token in parse_pattern(pattern) if token.isdigit()
    ]


@given(strong_roots, patterns)
def test_strong_roots_are_refused_only_in_forms_vii_and_viii(root: str, pattern: str) -> None:
    if formed(root, pattern) is None:
        assert "n1" in pattern or ("1t" in pattern and root[0] == "ṯ")


@given(any_roots, patterns)
def test_bare_is_the_surface_without_marks(root: str, pattern: str) -> None:
    form = formed(root, pattern)
    if form is not None:
        assert form.bare == strip_marks(form.surface)
        assert not set(form.bare) & MARKS
        assert [c for c in form.surface if c not in MARKS] == list(form.bare)


@given(any_roots, patterns)
def test_transliteration_goes_there_and_back(root: str, pattern: str) -> None:
    form = formed(root, pattern)
    if form is not None:
        assert read(form.surface) == form.translit
        assert write(form.translit) == form.surface


@given(any_roots, patterns)
def test_forms_are_well_spelt(root: str, pattern: str) -> None:
    form = formed(root, pattern)
    if form is None:
        return
    assert form.surface == unicodedata.normalize("NFC", form.surface)
    assert not re.search(r"[َُِْ]{2}|^[ًٌٍَُِّْ]|ءا|أا|أَا", form.surface)
    assert not re.search(r"\d", form.translit)
    assert not re.search("[aiuāīūá]{2}", form.translit)
    assert not re.search("iw(?![aāiīuūw])|uy(?![aāiīuūy])", form.translit)
    assert form.root == root
    assert form.root_ar == arabic_root(root)


@given(any_roots, patterns)
def test_the_same_root_gives_the_same_form(root: str, pattern: str) -> None:
    first, again = formed(root, pattern), formed("".join(radicals(root)), pattern)
    assert first == again


_syllable = st.tuples(st.sampled_from(STRONG), st.sampled_from([*SHORT, *LONG])).map("".join)


@given(st.lists(_syllable, min_size=1, max_size=5), st.sampled_from(["", *STRONG]))
def test_any_syllables_are_written_and_read(syllables: list[str], ending: str) -> None:
    text = "".join(syllables) + ending
    assert read(write(text)) == text


@pytest.mark.parametrize("name", _REAL)
def test_real_roots_belong_to_their_class(name: str) -> None:
    assert {root_class(root) for root in _REAL[name].split()} == {name}


def test_real_roots_are_many_and_different() -> None:
    assert len(real_roots()) == len(set(real_roots())) > 400
    assert all(formed(root, "ma12a3") or formed(root, "1a2a3a") for root in real_roots())


def test_invented_roots_are_harmonic_new_and_repeatable() -> None:
    roots = nonce_roots(50, seed=3, avoid=["fǧḍ"])
    assert roots == nonce_roots(50, seed=3, avoid=["فجض"])
    assert len(set(roots)) == 50
    assert not set(roots) & {*real_roots(), "fǧḍ"}
    assert all(is_harmonic(root) and root_class(root) == "strong" for root in roots)
    assert roots != nonce_roots(50, seed=4)
    assert {root_class(root) for root in nonce_roots(20, letters="C wy C")} == {"hollow"}
    assert {root_class(root) for root in nonce_roots(20, letters="C C =")} == {"geminate"}


def test_disharmonic_roots() -> None:
    assert not any(is_harmonic(root) for root in ("bfm", "dtk", "ktk", "qkb", "ḥʿr", "lrb", "ddm"))
    assert all(is_harmonic(root) for root in ("ktb", "drs", "fǧḍ", "kzf", "mdd"))


def test_too_many_invented_roots() -> None:
    with pytest.raises(MorphologyError, match="only"):
        nonce_roots(10**6)
