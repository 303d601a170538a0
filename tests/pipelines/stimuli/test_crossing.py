"""Roots x patterns x templates: order, ids, labels, spans, and what has no form."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from pipelines.stimuli.config import StimuliConfig
from pipelines.stimuli.crossing import cross
from pipelines.stimuli.translit import CONSONANTS

SECTION = TypeAdapter(StimuliConfig)
BASE = {
    "generate": "root_pattern",
    "roots": ["كتب", "درس"],
    "patterns": {"agent": "1A2i3", "place": {"pattern": "ma12a3", "title": "اسم المكان"}},
    "templates": {
        "spelt": {"text": "الجذر {root} على وزن {pattern}:", "reveals": ["root", "pattern"]},
        "named": {"text": "{pattern_name} من {root}:", "reveals": ["root", "pattern"]},
    },
}


def test_the_last_varies_fastest(build):
    stimuli = build(**BASE).stimuli
    assert [s.id for s in stimuli] == [
        "كتب.agent.spelt",
        "كتب.agent.named",
        "كتب.place.spelt",
        "كتب.place.named",
        "درس.agent.spelt",
        "درس.agent.named",
        "درس.place.spelt",
        "درس.place.named",
    ]
    assert [s.source_index for s in stimuli] == list(range(8))
    assert stimuli[0].prompt == "الجذر ك ت ب على وزن فَاعِل:"
    assert stimuli[1].prompt == "agent من ك ت ب:"
    assert stimuli[3].prompt == "اسم المكان من ك ت ب:"
    assert stimuli[3].template == "named"
    assert stimuli[3].reveals == ("root", "pattern")
    assert (stimuli[3].target, stimuli[3].expected, stimuli[3].expect_mode) == (None, None, "exact")


def test_labels_of_root_and_pattern_arrive(build):
    section = BASE | {
        "roots": [{"root": "كتب", "gloss": "write", "labels": {"kind": "strong"}}],
        "patterns": {"agent": {"pattern": "1A2i3", "labels": {"form": "I"}}},
    }
    assert build(**section).stimuli[0].labels == {
        "root": "كتب",
        "pattern": "agent",
        "gloss": "write",
        "kind": "strong",
        "form": "I",
    }


def test_the_target_s_place_comes_from_the_slot(build):
    """The root's letters stand twice in this prompt; the slot says which ones are meant."""
    template = {"text": "ك ت ب: {root}", "reveals": ["root"]}
    section = BASE | {"roots": ["كتب"], "templates": {"t": template}, "target": "{root}", "allow_leaks": True}
    target = build(**section).stimuli[0].target
    assert (target.text, target.start, target.end) == ("ك ت ب", 10, 18)


def test_a_slot_that_stands_twice_needs_an_occurrence(build, refused):
    template = {"text": "{root} و {root}:", "reveals": ["root"]}
    section = BASE | {"roots": ["كتب"], "templates": {"t": template}, "target": "{root}", "allow_leaks": True}
    assert "occurs 2 times" in refused(**section)
    target = build(**section, occurrence=2).stimuli[0].target
    assert (target.start, target.end) == (12, 20)


def test_a_composed_target_is_searched(build, refused):
    template = {"text": "كلمة «{surface}» هنا", "reveals": []}
    section = BASE | {"roots": ["كتب"], "patterns": {"a": "1A2i3"}, "templates": {"t": template}}
    target = build(**section, target="«{surface}»").stimuli[0].target
    assert target.text == "«كَاتِب»"
    assert "does not occur" in refused(**section, target="{translit}")


def test_expectation_and_script(build):
    section = BASE | {"script": "bare", "expect": " {surface}/{translit}", "expect_mode": "prefix"}
    section["templates"] = {
        "b": {"text": "{root}؟", "reveals": ["root"]},
        "l": {"text": "{root}?", "reveals": ["root"], "script": "translit"},
    }
    first, second = build(**section).stimuli[:2]
    assert (first.expected, first.expect_mode) == (" كاتب/kātib", "prefix")
    assert (second.prompt, second.expected) == ("k t b?", " kātib/kātib")


def test_pairs_without_a_form_are_named_or_dropped(build, refused):
    section = BASE | {"roots": ["ثمش", "كتب"], "patterns": {"viii": "i1ta2a3a", "i": "1a2a3a"}}
    said = refused(**section)
    assert "ثمش.viii" in said
    assert "on_unformable: drop" in said
    found = build(**section, on_unformable="drop")
    assert [item.id for item in found.dropped] == ["ثمش.viii.spelt", "ثمش.viii.named"]
    assert "ṯ" in found.dropped[0].reason
    assert [s.id for s in found.stimuli][:2] == ["ثمش.i.spelt", "ثمش.i.named"]
    assert [s.source_index for s in found.stimuli] == list(range(6))


def test_nothing_left_is_an_error(refused):
    said = refused(**BASE | {"roots": ["ثمش"], "patterns": {"viii": "i1ta2a3a"}, "on_unformable": "drop"})
    assert "nothing is left" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"roots": ["كتب", "درس", "كتب"]}, "the root 'كتب' is listed twice"),
        ({"roots": []}, "at least 1"),
        ({"roots": ["كت"]}, "has 2 radicals"),
        ({"roots": ["kt3"]}, "'3' is not a consonant"),
        ({"patterns": {"a": "1A2"}}, "has the slots '12'"),
        ({"patterns": {"a": "1?2a3"}}, "'?' is neither"),
        ({"templates": {"t": {"text": "{rot}", "reveals": []}}}, "did you mean 'root'?"),
        ({"templates": {"t": {"text": "{root}", "reveals": ["rot"]}}}, "which is no label here; did you mean 'root'?"),
        ({"templates": {"t": {"text": "{root}", "reveals": []}}}, "gives the label 'root' away: add it to `reveals`"),
        ({"templates": {"t": {"text": "{pattern_name}"}}}, "gives the label 'pattern' away"),
        ({"target": "{word}"}, "found the slot {word}"),
        ({"expect": "{"}, "found a lone '{'"),
        ({"roots": [{"root": "كتب", "labels": {"root": "x"}}]}, "the label 'root' is given twice"),
        (
            {
                "roots": [{"root": "كتب", "labels": {"k": "x"}}],
                "patterns": {"a": {"pattern": "1A2i3", "labels": {"k": "y"}}},
            },
            "the label 'k' is given twice",
        ),
    ],
)
def test_refused_where_it_stands_in_the_config(changes, said):
    with pytest.raises(ValidationError) as caught:
        SECTION.validate_python(BASE | changes)
    assert said in str(caught.value)


def test_leaking_slots_pass_when_allowed(build):
    section = BASE | {"templates": {"t": {"text": "{root} {pattern}"}}, "allow_leaks": True}
    assert build(**section).stimuli[0].reveals == ()


STRONG = sorted(set(CONSONANTS.values()) - set("ءويثاأإنمدذزصضطظت"))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(STRONG), min_size=3, max_size=3, unique=True))
def test_radicals_come_out_in_order(letters):
    section = SECTION.validate_python(BASE | {"roots": ["".join(letters)], "script": "bare", "expect": "{surface}"})
    drafts, dropped = cross(section)
    assert dropped == ()
    for draft in drafts:
        assert " ".join(letters) in draft.prompt
        rest = iter(draft.expected)
        assert all(letter in rest for letter in letters)  # a subsequence, in order
