"""Slots are filled in one pass, and their bytes are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from pipelines.stimuli.morphology import apply
from pipelines.stimuli.templates import SLOTS, fill, parse_template, slot_values


def filled(text, **values):
    return fill(parse_template(text), values)


def test_text_without_slots_stays():
    assert filled("كتاب").text == "كتاب"
    assert filled("كتاب").spans == ()


def test_doubled_braces_are_braces():
    assert filled("{{root}} {root} }}{{", root="x").text == "{root} x }{"


def test_values_are_never_read_as_slots_again():
    found = filled("{root}-{pattern}-{surface}", root="{pattern}", pattern="{surface}", surface="{root}{{")
    assert found.text == "{pattern}-{surface}-{root}{{"


def test_spans_count_bytes():
    found = filled("🦙 {root} ك {surface}", root="كَ", surface="")
    assert found.text == "🦙 كَ ك "
    assert found.spans == (("root", 5, 9), ("surface", 13, 13))  # llama 4 bytes, space 1, kaf and fatha 2 each
    assert found.text.encode()[5:9].decode() == "كَ"


def test_a_slot_may_stand_twice():
    assert filled("{root}.{root}", root="ab").span_of("root") == [(0, 2), (3, 5)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "{rot}",
            "found the slot {rot}, expected one of {root}, {pattern}, {pattern_name}, {surface}, {bare}, {translit}",
        ),
        ("{rot}", "did you mean 'root'?"),
        ("{}", "found the slot {}"),
        ("{root!r}", "found the slot {root!r}"),
        ("{root.x}", "found the slot {root.x}"),
        ("a { b", "found a lone '{'"),
        ("a } b", "found a lone '}'"),
        ("{{root}", "found a lone '}'"),
        ("{ {root}", "found a lone '{'"),
    ],
)
def test_what_is_no_slot_is_refused(text, said):
    with pytest.raises(PydanticCustomError) as caught:
        parse_template(text)
    assert said in str(caught.value)


pieces = st.lists(st.sampled_from([*SLOTS, None]) | st.text("aكَ{}🦙", max_size=4), max_size=6)


@given(pieces, st.text("fكَ{}🦙root", max_size=6))
def test_filling_is_concatenation(parts, value):
    text = "".join(f"{{{p}}}" if p in SLOTS else (p or "").replace("{", "{{").replace("}", "}}") for p in parts)
    found = fill(parse_template(text), dict.fromkeys(SLOTS, value))
    assert found.text == "".join(value if p in SLOTS else p or "" for p in parts)
    assert [name for name, _, _ in found.spans] == [p for p in parts if p in SLOTS]
    data = found.text.encode()
    assert all(data[start:end].decode() == value for _, start, end in found.spans)


def test_slot_values_in_each_script():
    form = apply("ktb", "ma12uu3")
    vocalised = slot_values(form, "اسم المفعول", "vocalised")
    assert vocalised == {
        "root": "ك ت ب",
        "pattern": "مَفْعُول",
        "pattern_name": "اسم المفعول",
        "surface": "مَكْتُوب",
        "bare": "مكتوب",
        "translit": "maktūb",
    }
    bare = slot_values(form, "x", "bare")
    assert (bare["root"], bare["pattern"], bare["surface"]) == ("ك ت ب", "مفعول", "مكتوب")
    latin = slot_values(form, "x", "translit")
    assert (latin["root"], latin["pattern"], latin["surface"]) == ("k t b", "mafʿūl", "maktūb")
    assert latin["bare"] == "مكتوب"


def test_the_measure_stays_strong_where_the_root_is_weak():
    """The measure is spelt on ف ع ل; its own rules must not depend on the root's letters."""
    values = slot_values(apply("قول", "1A2i3"), "x", "vocalised")
    assert (values["pattern"], values["surface"]) == ("فَاعِل", "قَائِل")


@pytest.mark.parametrize("root", ["عرف", "فعل", "لعف", "فلف", "علف"])
def test_roots_made_of_the_measure_s_own_letters(root):
    """A chain of replacements would replace a radical that equals a letter of the measure once more."""
    values = slot_values(apply(root, "1A2i3"), "x", "bare")
    assert values["surface"] == f"{root[0]}ا{root[1:]}"
    assert values["root"].replace(" ", "") == root
