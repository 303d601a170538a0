"""Filters, de-duplication, samples: what is left, and what is recorded."""

import pytest


def items(*rows):
    return [{"id": f"s{i}", "prompt": prompt, "labels": labels} for i, (prompt, labels) in enumerate(rows)]


WORDS = items(*[(f"كلمة {n}", {"n": str(n), "odd": str(n % 2), "group": str(n // 5)}) for n in range(20)])


def ids(made):
    return [s.id for s in made.stimuli]


def test_where(build, refused):
    made = build(items=WORDS, allow_leaks=True, select={"where": {"odd": "1", "group": ["0", "2"]}})
    assert ids(made) == ["s1", "s3", "s11", "s13"]
    assert [s.source_index for s in made.stimuli] == [0, 1, 2, 3]
    said = refused(items=WORDS, allow_leaks=True, select={"where": {"od": "1", "odd": ["1", "7"]}})
    assert "stimuli.select.where: no stimulus has a label 'od'; did you mean 'odd'?" in said
    assert "stimuli.select.where.odd: no stimulus has the value '7'" in said
    none = refused(items=WORDS, allow_leaks=True, select={"where": {"n": "1", "odd": "0"}})
    assert "no stimulus fits all of it" in none


def test_duplicates_by_text_and_folded(build):
    rows = items(("كتاب", {"a": "x"}), ("قلم", {}), ("كتاب", {"a": "y"}), ("كتاب ", {"a": "x"}), ("قلم", {}))
    made = build(items=rows, select={"deduplicate": "text"})
    assert ids(made) == ["s0", "s1", "s3"]
    assert made.record["steps"][1] == {
        "step": "deduplicate", "by": "text", "before": 5, "after": 3, "left_out_with_other_labels": 1
    }  # fmt: skip
    assert ids(build(items=rows, select={"deduplicate": "folded"})) == ["s0", "s1"]


def test_one_text_with_two_targets_is_no_duplicate(build):
    rows = [{"prompt": "كتاب كتاب", "target": "كتاب", "occurrence": n, "id": str(n)} for n in (1, 2)]
    for how in ("text", "folded"):
        assert len(build(items=rows, select={"deduplicate": how}).stimuli) == 2


def test_samples_are_repeatable_and_depend_on_the_seed_alone(build):
    def draw(rows, **sample):
        return ids(build(items=rows, allow_leaks=True, select={"sample": sample}))

    seven = draw(WORDS, count=7, seed=3)
    assert len(seven) == 7
    assert seven == sorted(seven, key=lambda name: int(name[1:]))
    assert sorted(draw(WORDS[::-1], count=7, seed=3)) == sorted(seven)
    assert draw(WORDS, count=7, seed=4) != seven
    # what is drawn of fewer stays drawn of more
    assert set(draw(WORDS, count=3, seed=3)) < set(seven)


def test_a_sample_of_each_value_and_of_whole_groups(build, refused):
    made = build(items=WORDS, allow_leaks=True, select={"sample": {"count": 3, "per": "odd"}})
    assert sorted(s.labels["odd"] for s in made.stimuli) == ["0"] * 3 + ["1"] * 3
    groups = build(items=WORDS, allow_leaks=True, select={"sample": {"count": 2, "group": "group", "seed": 1}})
    assert len(groups.stimuli) == 10
    assert len({s.labels["group"] for s in groups.stimuli}) == 2
    assert groups.record["steps"][-1] == {
        "step": "sample", "count": 2, "seed": 1, "group": "group", "before": 20, "after": 10
    }  # fmt: skip
    too_many = refused(items=WORDS, allow_leaks=True, select={"sample": {"count": 21}})
    assert "found 21, but there are 20 stimuli; ask for fewer" in too_many
    assert "there are 10 of odd '0'" in refused(
        items=WORDS, allow_leaks=True, select={"sample": {"count": 11, "per": "odd"}}
    )
    assert "has no label 'grup'; did you mean 'group'?" in refused(
        items=WORDS, allow_leaks=True, select={"sample": {"count": 1, "group": "grup"}}
    )
    assert "no stimulus has a label 'ode'" in refused(
        items=WORDS, allow_leaks=True, select={"sample": {"count": 1, "per": "ode"}}
    )


def test_steps_follow_each_other_and_are_counted(build):
    rows = [*WORDS, WORDS[0] | {"id": "again"}]
    select = {"where": {"odd": "0"}, "deduplicate": "text", "sample": {"count": 4}}
    made = build(items=rows, allow_leaks=True, select=select)
    counts = [(s["step"], s.get("before"), s["after"]) for s in made.record["steps"]]
    assert counts == [("read", None, 21), ("where", 21, 11), ("deduplicate", 11, 10), ("sample", 10, 4)]


def test_nothing_is_selected_by_default(build):
    made = build(items=["كتاب", "كتاب"])
    assert made.record == {"source": {"kind": "items"}, "normalize": {}, "steps": [{"step": "read", "after": 2}]}


def test_two_ways_to_draw_exclude_each_other(build):
    with pytest.raises(ValueError, match="keep one of the two"):
        build(items=WORDS, select={"sample": {"count": 1, "per": "odd", "group": "n"}})
