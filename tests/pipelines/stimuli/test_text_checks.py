"""What lint sees in texts and labels alone."""

import pytest

from pipelines.stimuli.record import Stimulus
from pipelines.stimuli.text_checks import label_findings, text_findings


def stimulus(i, prompt="p", labels=None, expected=None):
    return Stimulus(i, f"s{i}", prompt, labels or {}, None, (), None, expected, "exact")


def codes(*prompts):
    return {f.code: f.ids for f in text_findings([stimulus(i, p) for i, p in enumerate(prompts)])}


def labelled(*values):
    made = [stimulus(i, labels={"x": v} if v is not None else {}) for i, v in enumerate(values)]
    return {f.code: f for f in label_findings(made)}


def test_a_clean_set_has_none():
    assert codes("كتاب", "مُعَلِّم", "أمل") == {}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("كتـاب", "tatweel"),
        ("كتاب\u200f", "bidi_marks"),
        ("\u2067كتاب", "bidi_marks"),
        ("می\u200cخواهم", "invisible_marks"),
        ("\ufeffكتاب", "invisible_marks"),
        ("معل\u0651\u0650م", "mark_order"),  # shadda, then kasra
    ],
)
def test_each_kind_has_its_own_code(text, code):
    assert codes("قلم", text) == {code: ("s1",)}


def test_places_are_bytes():
    (finding,) = text_findings([stimulus(0, "كتـاب")])
    assert "U+0640 at byte 4 of 's0'" in finding.message


def test_composition_alone_is_no_reordering():
    assert codes("\u0627\u0654") == {}
    assert codes("e\u0301") == {}


def test_two_encodings_of_hamza():
    assert codes("أمل", "\u0627\u0654مر") == {"mixed_hamza": ("s1",)}


def test_expected_texts_in_another_form():
    (finding,) = text_findings([stimulus(0, expected="ش\u0651\u064e"), stimulus(1, expected="ش\u064e\u0651")])
    assert (finding.code, finding.ids) == ("expected_not_nfc", ("s0",))


def test_classes():
    assert labelled("a", "a", "b", "b") == {}
    assert labelled("a", "a", "a")["one_class"].severity == "note"
    uneven = labelled(*["a"] * 19, *["b"] * 2)
    assert list(uneven) == ["imbalance"]
    assert "19 of 21 stimuli have x 'a': always saying that is 90% right" in uneven["imbalance"].message
    single = labelled("a", "a", "b", "b", "c")["single_class"]
    assert single.ids == ("s4",)
    assert "1 of 3 values of 'x' stand on one stimulus only ('c')" in single.message


def test_values_that_say_there_is_none():
    """Read as they stand they are classes: seven of these would be."""
    found = labelled("a", "a", "", "NaN", "NA", "None", "null", "-", "b", "b", None)["no_value"]
    assert (found.severity, found.ids) == ("warning", ("s2", "s3", "s4", "s5", "s6", "s7"))
    assert found.message.startswith(
        "6 stimuli have '', 'NaN', 'NA', 'None', 'null', '-' as the label 'x', which a probe"
    )
    assert labelled("a", "a", " ", "b")["no_value"].message.startswith("1 stimulus has ' ' as the label 'x'")
    assert "no_value" not in labelled("a", "a", "nana", "non", "--", "b", "naïve")


def test_names_are_no_classes():
    assert labelled(*map(str, range(100))) == {}


def test_values_written_twice():
    """One class under two spellings is two classes for a probe."""
    found = labelled("كتب", "كتب", "كتب ", "Sing", "sing", "sing")
    assert found["label_spelling"].ids == ("s2", "s3")
    assert "2 groups of values of the label 'x' differ in" in found["label_spelling"].message
    assert found["label_spelling"].message.endswith(": 'كتب', 'كتب '; 'Sing', 'sing'")
    many = label_findings([stimulus(i, labels={"x": f"{'wW'[i % 2]}{i // 2}"}) for i in range(40)])
    (one,) = (finding for finding in many if finding.code == "label_spelling")
    assert one.message.startswith("20 groups of values")
    assert one.message.endswith("; …")
    assert len(one.ids) == 20
    said = [
        f.message for f in label_findings([stimulus(0, labels={"x": "\u0623"}), stimulus(1, labels={"x": "ا\u0654"})])
    ]
    assert any("normal form only" in one for one in said)
