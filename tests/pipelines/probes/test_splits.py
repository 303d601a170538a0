"""Folds: groups stay whole, classes are spread, and a split that would say nothing is refused with the reason."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.probes.splits import Grouping, SplitRefused, make_folds, outside


def grouping(field: str, codes: Any) -> Grouping:
    codes = np.asarray(codes)
    return Grouping(field, tuple(f"{field}{i}" for i in range(int(codes.max()) + 1)), codes)


def folds_of(y: Any, *groups: Grouping, count: int = 3, prompts: Any = None, seed: int = 0) -> Any:
    y = np.asarray(y)
    own = grouping("prompt", np.arange(len(y)) if prompts is None else prompts)
    names = [f"c{i}" for i in range(int(y.max()) + 1)]
    return make_folds(y, names, groups or (own,), own, count=count, seed=seed)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(6, 30), st.integers(2, 4), st.integers(3, 5))
def test_groups_stay_whole_and_every_row_is_tested_once(seed: int, groups: int, classes: int, count: int) -> None:
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), random.integers(1, 5, groups))
    y = random.integers(0, classes, len(group))
    try:
        folds = folds_of(y, grouping("word", group), count=count, seed=seed)
    except SplitRefused:
        return
    tested = np.zeros(len(y), int)
    for key in folds.keys:
        test, training = folds.test_rows(key), folds.training_rows(outside(key))
        tested[test] += 1
        assert not set(group[test]) & set(group[training])
        for inner in folds.inner(key):
            chosen_on, learnt = inner.judge, inner.learn
            assert not set(group[chosen_on]) & set(group[learnt])
            assert not set(group[test]) & (set(group[chosen_on]) | set(group[learnt]))
    assert (tested == 1).all()


def test_two_fields_held_out_share_neither_with_training() -> None:
    root, pattern = (a.ravel() for a in np.meshgrid(np.arange(9), np.arange(6), indexing="ij"))
    folds = folds_of((root + pattern) % 2, grouping("root", root), grouping("pattern", pattern))
    assert len(folds.keys) == 9
    for key in folds.keys:
        test, training = folds.test_rows(key), folds.training_rows(outside(key))
        assert not set(root[test]) & set(root[training])
        assert not set(pattern[test]) & set(pattern[training])
        assert len(training) == 6 * 4
        assert len(folds.inner(key)) == 4
    assert sorted(np.concatenate([folds.test_rows(key) for key in folds.keys])) == list(range(54))


def test_of_two_templates_strengths_are_chosen_inside_the_one_that_is_learnt_from() -> None:
    template, prompt = np.arange(60) % 2, np.arange(60) // 4 * 2 + np.arange(60) % 2
    folds = folds_of(np.arange(60) // 2 % 3, grouping("template", template), count=2, prompts=prompt)
    assert len(folds.keys) == 2
    for key in folds.keys:
        test = folds.test_rows(key)
        judged = [inner.judge for inner in folds.inner(key)]
        assert sorted(np.concatenate(judged)) == folds.training_rows(outside(key)).tolist()
        for inner in folds.inner(key):
            assert not set(test) & (set(inner.learn) | set(inner.judge))
            assert not set(prompt[inner.learn]) & set(prompt[inner.judge])


@pytest.mark.parametrize("seed", range(20))
def test_a_small_template_beside_a_large_one_has_parts_to_choose_strengths_on(seed: int) -> None:
    """6 and 60 stimuli: parts that are dealt over both may leave the six without one, and its accuracy is none."""
    template = np.repeat([0, 1], [6, 60])
    folds = folds_of(np.arange(66) % 2, grouping("template", template), count=2, seed=seed)
    small = folds.inner((int(folds.assigned[0][-1]),))
    large = folds.inner((int(folds.assigned[0][0]),))
    assert [len(one.judge) for one in small] == [2, 2, 2]
    assert [len(one.judge) for one in large] == [20, 20, 20]
    assert sorted(row for one in small for row in one.judge.tolist()) == list(range(6))


def test_a_fold_of_two_prompts_has_two_parts_and_one_of_one_prompt_is_refused() -> None:
    template = np.repeat([0, 1], [6, 60])
    y = np.tile([0, 1], 33)
    two = np.concatenate([[0, 0, 0, 1, 1, 1], np.arange(2, 62)])
    folds = folds_of(y, grouping("template", template), count=2, prompts=two)
    assert [len(one.judge) for one in folds.inner((int(folds.assigned[0][-1]),))] == [3, 3]
    one = np.concatenate([[0] * 6, np.arange(1, 61)])
    with pytest.raises(SplitRefused, match="leaves nothing to choose strengths on: it needs two parts that share no"):
        folds_of(y, grouping("template", template), count=2, prompts=one)


def test_random_folds_have_the_classes_in_equal_parts() -> None:
    y = np.repeat([0, 1, 2], [50, 30, 20])
    folds = folds_of(y, count=5)
    for key in folds.keys:
        assert np.bincount(y[folds.test_rows(key)]).tolist() == [10, 6, 4]


def test_classes_of_two_groups_are_never_both_held_out() -> None:
    group = np.repeat(np.arange(20), 4)
    y = group // 2
    for seed in range(20):
        folds = folds_of(y, grouping("root", group), count=4, seed=seed)
        for key in folds.keys:
            assert set(y[folds.test_rows(key)]) <= set(y[folds.training_rows(outside(key))])


def test_the_seed_decides_and_nothing_else() -> None:
    y = np.arange(60) % 3
    same = [folds_of(y, seed=4).assigned.tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert folds_of(y, seed=5).assigned.tolist() != same[0]


def test_what_is_held_out_cannot_be_told() -> None:
    root = np.repeat(np.arange(6), 5)
    with pytest.raises(SplitRefused, match="every class occurs in one root only"):
        folds_of(root, grouping("root", root))
    y = np.where(root == 5, 1, 0)
    with pytest.raises(SplitRefused, match=r"'c1' occurs in one root only.*`exclude`"):
        folds_of(y, grouping("root", root))


def test_too_few_groups_for_the_folds() -> None:
    group = np.repeat(np.arange(2), 10)
    with pytest.raises(SplitRefused, match="5 folds need at least 5 groups; there are 2 different templates"):
        folds_of(np.arange(20) % 2, grouping("template", group), count=5)


def test_a_prompt_on_both_sides_is_a_leak() -> None:
    root, prompt = np.arange(24) % 6, np.arange(24) // 4
    with pytest.raises(SplitRefused, match="the same prompt stands in training and test"):
        folds_of(np.arange(24) // 12, grouping("root", root), prompts=prompt)


def test_prompts_that_are_equal_stay_together_in_a_random_split() -> None:
    prompt = np.arange(40) // 4
    folds = folds_of(np.arange(40) % 2, count=5, prompts=prompt)
    for p in range(10):
        assert len(set(folds.assigned[0][prompt == p])) == 1


def test_a_training_fold_of_one_class_is_refused() -> None:
    root, pattern = (a.ravel() for a in np.meshgrid(np.arange(3), np.arange(3), indexing="ij"))
    y = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0])
    with pytest.raises(SplitRefused, match="fewer than two classes"):
        folds_of(y, grouping("root", root), grouping("pattern", pattern))
