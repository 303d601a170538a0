"""Numbers worked out by hand or by other code."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_recall_fscore_support

from pipelines.probes.metrics import Resampling, accuracy, count, macro_f1, margin
from pipelines.probes.targets import control_codes, generator
from pipelines.probes.texts import character_features, token_features


def test_counts_and_f1_are_those_of_sklearn() -> None:
    random = np.random.default_rng(0)
    y, told = random.integers(0, 4, 200), random.integers(0, 4, 200)
    counts = count(y, told, 4)
    _, _, f1, support = precision_recall_fscore_support(y, told)
    assert np.allclose(counts.f1, f1)
    assert counts.rows.tolist() == support.tolist()
    assert counts.macro_f1 == pytest.approx(f1_score(y, told, average="macro"))


def test_a_class_that_neither_occurs_nor_is_told_does_not_count() -> None:
    counts = count(np.array([0, 0, 1]), np.array([0, 1, 1]), 3)
    assert counts.macro_f1 == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_intervals_are_those_of_a_bootstrap_written_out() -> None:
    """Groups drawn one by one with the same random numbers, rows counted in a loop."""
    group = np.array([0, 0, 0, 1, 1, 2, 3, 3])
    y = np.array([0, 1, 0, 1, 1, 0, 1, 0])
    told = np.array([0, 1, 1, 1, 0, 0, 1, 1])
    draws = Resampling([group], 200, generator(0, "x"))
    times = generator(0, "x").multinomial(4, np.full(4, 0.25), size=200)
    shares, f1 = [], []
    for drawn in times:
        rows = [row for g, n in enumerate(drawn) for _ in range(n) for row in np.flatnonzero(group == g)]
        shares.append(np.mean(y[rows] == told[rows]))
        f1.append(count(y[rows], told[rows], 2).macro_f1)
    found = accuracy(y == told, draws)
    assert (found.value, found.low, found.high) == pytest.approx((0.625, *np.quantile(shares, [0.025, 0.975])))
    found = macro_f1(y, told, 2, draws)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(f1, [0.025, 0.975])))


def test_rows_of_one_group_do_not_make_an_interval_narrower() -> None:
    right = np.random.default_rng(0).random(40) < 0.6
    one = accuracy(right, Resampling([np.arange(40)], 2000, generator(0, "x")))
    many = accuracy(np.repeat(right, 10), Resampling([np.repeat(np.arange(40), 10)], 2000, generator(0, "x")))
    assert (many.low, many.high) == pytest.approx((one.low, one.high))


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(200):
        right = np.random.default_rng(seed).random(100) < 0.7
        found = accuracy(right, Resampling([np.arange(100)], 400, generator(seed, "x")))
        hits += found.low <= 0.7 <= found.high
    assert 180 <= hits <= 198


def test_two_ways_of_grouping_multiply() -> None:
    root, pattern = (a.ravel() for a in np.meshgrid(np.arange(3), np.arange(2), indexing="ij"))
    draws = Resampling([root, pattern], 50, generator(1, "x"))
    random = generator(1, "x")
    by_root = random.multinomial(3, np.full(3, 1 / 3), size=50)
    by_pattern = random.multinomial(2, np.full(2, 1 / 2), size=50)
    expected = by_root[:, root] * by_pattern[:, pattern]
    assert np.array_equal(draws.sums(np.eye(6)), expected)


def test_the_margin_is_over_the_best_control() -> None:
    right = np.array([True] * 9 + [False])
    weak, strong = np.array([True] * 2 + [False] * 8), np.array([True] * 5 + [False] * 5)
    found = margin(right, [weak, strong], Resampling([np.arange(10)], 500, generator(0, "x")))
    assert found.value == pytest.approx(0.4)
    assert found.low < 0.4 < found.high
    assert margin(right, [right], Resampling([np.arange(10)], 500, generator(0, "x"))).low == 0


def test_control_labels_belong_to_types_and_are_drawn_as_often_as_labels_occur() -> None:
    types = np.repeat(np.arange(2000), 3)
    y = (np.arange(6000) % 10 == 0).astype(int)
    found = control_codes(y, types, generator(0, "control"))
    assert all(len(set(found[types == t])) == 1 for t in range(0, 2000, 97))
    assert found.mean() == pytest.approx(0.1, abs=0.03)
    assert np.array_equal(found, control_codes(y, types, generator(0, "control")))


def test_a_control_task_has_two_labels_even_if_chance_gave_one() -> None:
    y = np.array([0] * 99 + [1])
    for seed in range(20):
        assert len(set(control_codes(y, np.arange(100) // 50, generator(seed, "c")))) == 2


def test_character_features_count_runs_of_one_to_three_characters() -> None:
    found = character_features(["abab", "abc"]).counts
    # telling: a (2, 1), b (2, 1), c, ab (2, 1), ba, bc, aba, bab, abc; `ab` is in both but not as often
    assert found.shape == (2, 9)
    assert sorted(map(tuple, found.T.tolist())) == sorted(
        [(2, 1), (2, 1), (2, 1), (1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1)]
    )


def test_token_features_tell_the_last_token_apart() -> None:
    found = token_features([[5, 7], [7, 5]]).counts
    # as bags both are alike; the last tokens are not
    assert sorted(map(tuple, found.T.tolist())) == [(0, 1), (1, 0)]


def test_prompts_that_are_all_alike_tell_nothing() -> None:
    assert not character_features(["abc", "abc"]).counts.any()
