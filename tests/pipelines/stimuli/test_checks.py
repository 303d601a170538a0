"""Leaks are refused, oddities reported, nothing is changed."""

import pytest

from pipelines.stimuli.checks import find, has_word, leaks, unknown_reveals
from pipelines.stimuli.record import Dropped, Stimulus


def stimulus(prompt, name=None, labels=None, template=None, reveals=()):
    return Stimulus(0, name or prompt, prompt, labels or {}, template, tuple(reveals), None, None, "exact")


def found(*prompts):
    return {finding.code: finding for finding in find([stimulus(p, f"s{i}") for i, p in enumerate(prompts)])}


def test_a_clean_set_has_no_findings():
    assert find([stimulus("كتاب"), stimulus("قلم")]) == []


@pytest.mark.parametrize(
    ("text", "word", "expected"),
    [
        ("the plural word", "plural", True),
        ("plural", "plural", True),
        ("(plural)", "plural", True),
        ("plurals", "plural", False),
        ("unplural plural", "plural", True),
        ("الكتاب", "كتاب", False),
        ("كتابٌ", "كتاب", False),  # a mark belongs to the word
        ("a b", "a", False),  # too short to mean anything
        ("x", "", False),
    ],
)
def test_words_have_borders(text, word, expected):
    assert has_word(text, word) is expected


def test_a_label_in_the_text_is_a_leak():
    """M07: 'the plural word X'."""
    one = stimulus("the Plural word كتب", labels={"number": "plural"})
    (said,) = leaks([one])
    assert "'number' stands in the text of 1 prompts" in said
    assert leaks([stimulus("the plural word", labels={"number": "plural"}, reveals=["number"])]) == []


def test_a_template_that_decides_a_label_is_a_leak():
    """M07: template A only with class 1."""
    stimuli = [
        stimulus("x one", labels={"c": "k1"}, template="A"),
        stimulus("x two", labels={"c": "k1"}, template="A"),
        stimulus("y one", labels={"c": "k2"}, template="B"),
    ]
    (said,) = leaks(stimuli)
    assert "'c' follows from the template alone (A, B have one value each)" in said
    assert leaks([*stimuli, stimulus("x three", labels={"c": "k2"}, template="A")]) == []
    assert leaks(stimuli[:2]) == []


def test_misspelt_reveals_are_refused():
    (said,) = unknown_reveals([stimulus("a", labels={"number": "pl"}, reveals=["numbr"])])
    assert said == "stimuli: `reveals` names 'numbr', which is no label; did you mean 'number'?"


def test_building_refuses_leaks_unless_allowed(build, refused):
    items = [{"prompt": "the plural", "labels": {"number": "plural"}}]
    assert "allow_leaks: true" in refused(items=items)
    assert build(items=items, allow_leaks=True).stimuli
    assert build(items=items, reveals=["number"]).stimuli


def test_misspelt_reveals_are_refused_even_where_leaks_are_allowed(refused):
    said = refused(items=[{"prompt": "a", "labels": {"number": "pl"}, "reveals": ["numbr"]}], allow_leaks=True)
    assert "did you mean 'number'?" in said


def test_trailing_white_space():
    """E02, T25: a prompt as a plain, quoted or block scalar may end in white space."""
    findings = found("The word is ", "x\n", "y\u00a0", "z")
    assert findings["trailing_space"].ids == ("s0", "s1", "s2")


def test_one_ending_everywhere():
    """M10: `position: last` would capture the full stop."""
    said = found("كتاب.", "قلم.")["same_ending"].message
    assert "U+002E" in said
    assert "same_ending" not in found("كتاب.")


def test_duplicates_by_text():
    """M02: another id, a trailing space, another normal form."""
    findings = found("كتاب", "كتاب", "كتاب ", "\u0623", "\u0627\u0654", "x")
    assert findings["duplicate_text"].ids == ("s0", "s1")
    assert findings["near_duplicate"].ids == ("s0", "s1", "s2", "s3", "s4")


def test_one_is_not_told_as_many():
    findings = found("a b", "a b", "A b", "c", "C")
    assert findings["duplicate_text"].message.startswith("1 text stands under several ids")
    assert findings["near_duplicate"].message.startswith("2 groups of texts differ in white space")
    assert found("c ", "d")["trailing_space"].message.startswith("1 prompt ends in white space")
    assert found("c ", "d ")["trailing_space"].message.startswith("2 prompts end in white space")
    assert found("a\u200db", "d")["invisible_marks"].message.startswith("1 prompt holds invisible")
    assert found("c", "C")["near_duplicate"].message.startswith("1 group of texts differs in white space")


def test_not_nfc_is_counted():
    """T11."""
    finding = found("ش\u0651\u064e", "ش\u064e\u0651", "ab")["not_nfc"]
    assert finding.ids == ("s0",)
    assert finding.message.startswith("1 prompt is not in NFC")


@pytest.mark.parametrize("mark", ["\u200f", "\u061c", "\u200c", "\u0640", "\ufeff", "\u2066"])
def test_invisible_marks_are_placed(mark):
    """T13."""
    finding = found(f"كت{mark}ب", "x")["invisible_marks"]
    assert f"U+{ord(mark):04X}" in finding.message
    assert "at character 2 of 's0'" in finding.message


def test_mixed_encodings_of_a_letter():
    """T12."""
    findings = found("\u0643ب", "\u06a9ب", "\u064aد", "\u06ccد")
    assert findings["mixed_kaf"].ids == ("s1",)
    assert findings["mixed_yeh"].ids == ("s3",)
    assert "mixed_kaf" not in found("\u06a9ب", "\u06a9د")
    assert found("\ufefbم")["presentation_forms"].ids == ("s0",)


def test_uneven_labels():
    """Q03: a label misspelt in one item."""
    findings = find([stimulus("a", labels={"root_class": "x"}), stimulus("b", labels={"root_clas": "x"})])
    assert [(f.code, f.ids) for f in findings] == [("uneven_label", ("a",)), ("uneven_label", ("b",))]


def test_dropped_crossings_are_listed():
    (finding,) = find([], [Dropped("a.b.c", "no rule")])
    assert (finding.code, finding.ids) == ("dropped", ("a.b.c",))
    assert "no rule" in finding.message
