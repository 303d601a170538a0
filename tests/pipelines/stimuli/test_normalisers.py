"""Opt-in changes of texts: what each does, what none does, and that nothing happens unasked."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.stimuli.normalisers import NORMALISERS, changes, normalised

TEXTS = st.text(
    st.characters(exclude_categories=("Cs",)) | st.sampled_from("كتبـ\u064e\u0651\u200f\u06cc\u06a9\ufefb\u0654ا")
)


@pytest.mark.parametrize(
    ("name", "given_", "after"),
    [
        ("nfc", "ش\u0651\u064e", "ش\u064e\u0651"),
        ("nfc", "ا\u0654", "أ"),
        ("strip_bidi_marks", "\u202bكتاب\u200f\u061c\u202c\u2067", "كتاب"),
        ("strip_bidi_marks", "می\u200cخواهم", "می\u200cخواهم"),  # a joiner shapes letters
        ("strip_tatweel", "كتـــاب", "كتاب"),
        ("strip_diacritics", "كِتَابٌ مُعَلِّم هٰذا", "كتاب معلم هذا"),
        ("strip_diacritics", "آكِل سُؤال", "آكل سؤال"),
        ("unify_yeh_kaf", "\u06a9\u062a\u0628\u06cc", "\u0643\u062a\u0628\u064a"),
        ("unify_yeh_kaf", "على", "على"),
        ("fold_presentation_forms", "\ufefb \ufedb\ufe98\ufe90", "لا كتب"),
        ("fold_presentation_forms", "ﬁ ²", "ﬁ ²"),  # other compatibility characters stay
    ],
)
def test_each(name, given_, after):
    assert NORMALISERS[name](given_) == after


@given(TEXTS)
def test_all_are_idempotent_and_leave_no_half_work(text):
    for name, step in NORMALISERS.items():
        once = step(text)
        assert step(once) == once, name
        once.encode()


@given(st.text(st.characters(max_codepoint=0x5FF, exclude_categories=("Cs", "M"))))
def test_texts_without_arabic_are_left_alone(text):
    for name in NORMALISERS.keys() - {"nfc"}:
        assert NORMALISERS[name](text) == text
    assert normalised(text, ["nfc"]) == unicodedata.normalize("NFC", text)


def test_order_is_the_config_s(build):
    (made,) = build(items=["ﻛـِ"], normalize=["fold_presentation_forms", "strip_tatweel", "strip_diacritics"]).stimuli
    assert (made.prompt, made.original) == ("ك", "ﻛـِ")


def test_counts_are_recorded_and_originals_kept(build):
    made = build(items=["كتـاب", "كِتاب", "قلم"], normalize=["strip_tatweel", "strip_diacritics"])
    assert made.record["normalize"] == {"strip_tatweel": 1, "strip_diacritics": 1}
    assert [s.original for s in made.stimuli] == ["كتـاب", "كِتاب", None]
    assert changes(["كـِ"], ["strip_tatweel", "strip_diacritics"]) == {"strip_tatweel": 1, "strip_diacritics": 1}


def test_targets_and_expected_texts_move_along(build, refused):
    item = {"prompt": "هـذا كِتَاب", "target": "كِتَاب", "expected": " كِتَاب"}
    (made,) = build(items=[item], normalize=["strip_tatweel", "strip_diacritics"]).stimuli
    assert (made.target.text, made.target.start, made.target.end, made.expected) == ("كتاب", 7, 15, " كتاب")
    said = refused(items=[{"prompt": "كـتاب", "target": "ـ"}], normalize=["strip_tatweel"])
    assert "normalising leaves nothing of the target" in said
    assert "nothing of the prompt" in refused(items=["ـ"], normalize=["strip_tatweel"])


def test_the_tokenizer_s_nfc_comes_last(build):
    made = build(items=["ا\u0640\u0654"], of_tokenizer="nfc", normalize=["strip_tatweel"])
    assert made.stimuli[0].prompt == "أ"
    assert made.record["normalize"] == {"strip_tatweel": 1, "nfc": 1}


def test_unknown_names_are_refused(build):
    with pytest.raises(ValueError, match="strip_tatweel"):
        build(items=["a"], normalize=["strip_tatwel"])
