"""The five-stage sampler: exact probabilities by hand, ties, order of the stages, and random numbers per prompt."""

import math
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ember.errors import InputError, NumericsError
from ember.sampling import check_sampling, draw, generator, keep_top_k, keep_top_p, softmax

QUARTERS = np.log([0.1, 0.2, 0.3, 0.4]).astype(np.float32)
"""Logits of four tokens whose probabilities are tenths."""
CRITICAL = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47}
"""Chi-square that chance exceeds once in a thousand, by degrees of freedom (any table of it)."""


def frequencies(logits: Any, temperature: float, top_k: int, top_p: float, n: int = 20_000) -> list[int]:
    """How often each token comes up in n draws of one seed."""
    numbers = generator(11, "frequencies")
    drawn = [draw(np.asarray(logits), temperature, top_k, top_p, numbers.random()) for _ in range(n)]
    return np.bincount(drawn, minlength=len(logits)).tolist()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "expected"),
    [
        # nothing switched on: the model's own probabilities
        (1.0, 0, 1.0, (".1", ".2", ".3", ".4")),
        # temperature 1/2 squares them: 1, 4, 9, 16 of 30
        (0.5, 0, 1.0, ("1/30", "4/30", "9/30", "16/30")),
        # the two likeliest: 3 and 4 of 7
        (1.0, 2, 1.0, ("0", "0", "3/7", "4/7")),
        # .4 does not exceed .5, .4 + .3 does: 3 and 4 of 7
        (1.0, 0, 0.5, ("0", "0", "3/7", "4/7")),
        # top-p sees what temperature and top-k left: 4, 9, 16 of 29; 16/29 exceeds .55, so one token is enough
        (0.5, 3, 0.55, ("0", "0", "0", "1")),
        # without top-k the largest is 16/30 = .533, which does not exceed .55
        (0.5, 0, 0.55, ("0", "0", "9/25", "16/25")),
        # and at temperature 1 it would take .4 + .3
        (1.0, 3, 0.55, ("0", "0", "3/7", "4/7")),
    ],
)
def test_draws_follow_the_probabilities_worked_out_by_hand(temperature, top_k, top_p, expected) -> None:
    n = 20_000
    shares = [float(Fraction(one)) for one in expected]
    found = frequencies(QUARTERS, temperature, top_k, top_p, n)
    assert [count for count, share in zip(found, shares, strict=True) if share == 0] == [0] * shares.count(0)
    pairs = [(count, share * n) for count, share in zip(found, shares, strict=True) if share]
    chi_square = sum((count - mean) ** 2 / mean for count, mean in pairs)
    assert len(pairs) == 1 or chi_square < CRITICAL[len(pairs) - 1]


def test_the_stages_come_in_their_order() -> None:
    """Top-p looks at what top-k left: .35 is more than .58 of the two likeliest, and less than .58 of all six."""
    logits = np.log([0.05, 0.05, 0.1, 0.2, 0.25, 0.35])
    after_k = keep_top_p(keep_top_k(logits, 2), 0.58)  # .35/.60 = .583 exceeds .58 alone
    before_k = keep_top_k(keep_top_p(logits, 0.58), 2)  # .35 + .25 = .60 exceeds it, both stay
    assert np.isfinite(after_k).tolist() == [False] * 5 + [True]
    assert np.isfinite(before_k).tolist() == [False] * 4 + [True, True]
    assert {draw(logits, 1.0, 2, 0.58, u) for u in np.linspace(0, 0.999, 50)} == {5}


@pytest.mark.parametrize(
    ("uniform", "token"),
    [(0.0, 0), (0.0999, 0), (0.1001, 1), (0.2999, 1), (0.3001, 2), (0.5999, 2), (0.6001, 3), (1 - 2**-53, 3)],
)
def test_a_draw_inverts_the_cumulative_distribution_in_order_of_ids(uniform: float, token: int) -> None:
    assert draw(QUARTERS, 1.0, 0, 1.0, uniform) == token


def test_what_equals_the_kth_is_kept() -> None:
    logits = np.array([1.0, 3.0, 2.0, 2.0, 0.0, 2.0])
    assert np.isfinite(keep_top_k(logits, 1)).tolist() == [False, True, False, False, False, False]
    for k in (2, 3, 4):
        assert np.isfinite(keep_top_k(logits, k)).tolist() == [False, True, True, True, False, True]
    assert np.isfinite(keep_top_k(logits, 5)).tolist() == [True, True, True, True, False, True]


def test_equal_tokens_enter_the_set_of_top_p_by_id() -> None:
    assert np.isfinite(keep_top_p(np.zeros(4), 0.5)).tolist() == [True, True, True, False]  # 2/4 does not exceed 1/2
    assert np.isfinite(keep_top_p(np.zeros(4), 0.49)).tolist() == [True, True, False, False]
    assert np.isfinite(keep_top_p(np.array([0.0, 5.0, 5.0]), 0.0)).tolist() == [False, True, False]


@pytest.mark.parametrize("top_k", [0, 4, 5, 10**9])
def test_top_k_of_nothing_or_everything_changes_nothing(top_k: int) -> None:
    given_logits = np.array([0.5, -np.inf, 2.0, 1.0])
    assert keep_top_k(given_logits, top_k) is given_logits


def test_top_p_of_one_changes_nothing() -> None:
    given_logits = np.array([0.5, -np.inf, 2.0, -700.0])
    assert keep_top_p(given_logits, 1.0) is given_logits
    assert draw(given_logits, 1.0, 0, 1, 1 - 2**-53) == 2


def test_temperature_zero_takes_the_largest_and_the_lowest_id_of_equals() -> None:
    for top_k, top_p, uniform in [(0, 1.0, 0.0), (3, 0.1, 0.7), (1, 0.0, 0.999)]:
        assert draw(np.array([1, 7, 7, -np.inf, 7], np.float32), 0, top_k, top_p, uniform) == 1


def test_float32_logits_are_drawn_in_float64() -> None:
    """A million tokens of one logit: float32 sums would stop growing long before the last one."""
    logits = np.zeros(1_000_000, np.float32)
    assert draw(logits, 1.0, 0, 1.0, 0.999_999_5) == 999_999
    assert draw(logits, 1.0, 0, 1.0, 0.5) in (499_999, 500_000)


def test_rounding_that_leaves_nothing_takes_the_largest() -> None:
    logits = np.log(np.full(10, 0.1)) + np.array([0, 0, 0, 1e-9, 0, 0, 0, 0, 0, 0])
    assert float(np.cumsum(softmax(logits))[-1]) <= 1.0
    assert draw(logits, 1.0, 0, 1.0, 1.0) == 3  # 1.0 itself is no uniform number: beyond every cumulative sum


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-5])
def test_a_temperature_near_zero_does_not_overflow(temperature: float) -> None:
    logits = np.array([3.0e38, -3.0e38, 3.1e38, 0.0], np.float32)
    assert {draw(logits, temperature, 0, 1.0, u) for u in (0.0, 0.5, 0.999)} == {2}


def test_a_huge_temperature_makes_all_tokens_alike() -> None:
    counts = frequencies([0.0, 50.0, -50.0, 7.0], 1e300, 0, 1.0)
    assert sum((count - 5000) ** 2 / 5000 for count in counts) < CRITICAL[3]


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize(
    ("logits", "said"),
    [
        ([-np.inf, -np.inf], "nothing but -inf"),
        ([0.0, np.nan], "NaN"),
        ([np.nan, np.inf], "NaN"),
        ([0.0, np.inf], "\\+inf"),
    ],
)
def test_logits_that_mean_nothing_are_refused(logits, said, temperature) -> None:
    with pytest.raises(NumericsError, match=said):
        draw(np.array(logits, np.float32), temperature, 0, 1.0, 0.5)


def test_a_masked_token_is_never_drawn() -> None:
    counts = frequencies([-np.inf, 0.0, -np.inf, 0.0, -np.inf], 1.0, 0, 1.0)
    assert counts[0] == counts[2] == counts[4] == 0
    assert abs(counts[1] - 10_000) < 400


def test_softmax_by_hand_and_of_rows_without_a_finite_value() -> None:
    found = softmax(np.array([[np.log(1), np.log(3)], [-np.inf, -np.inf], [1000.0, -np.inf]]))
    assert found.dtype == np.float64
    assert found[0] == pytest.approx([0.25, 0.75], abs=1e-15)
    assert found[1:].tolist() == [[0.5, 0.5], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((-0.1, 0, 1.0), "temperature -0.1"),
        ((math.nan, 0, 1.0), "temperature nan"),
        ((math.inf, 0, 1.0), "temperature inf"),
        ((True, 0, 1.0), "temperature True"),
        (("1", 0, 1.0), "temperature '1'"),
        ((1.0, -1, 1.0), "top_k -1"),
        ((1.0, 1.5, 1.0), "top_k 1.5"),
        ((1.0, True, 1.0), "top_k True"),
        ((1.0, 0, 1.1), "top_p 1.1"),
        ((1.0, 0, -0.1), "top_p -0.1"),
        ((1.0, 0, math.nan), "top_p nan"),
        ((1.0, 0, None), "top_p None"),
    ],
)
def test_options_out_of_range_are_refused(options: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_sampling(*options)


def test_options_in_range_are_taken() -> None:
    for options in [(0, 0, 1), (0.0, 10**9, 0.0), (1.5, 40, 0.95), (np.float32(0.5), 1, 1.0)]:
        check_sampling(*options)


# -- random numbers


def test_the_first_numbers_of_some_prompts_are_pinned() -> None:
    """Whoever repeats a run next year must draw the same tokens: these change with numerics_version or not at all."""
    assert generator(0, "a").random(3).tolist() == [0.1227096188630985, 0.2578825279942001, 0.43752555730713094]
    assert generator(7, "كتب").random(2).tolist() == [0.6902502354882544, 0.5033064327565185]


def test_the_numbers_are_philox_under_a_hash_of_seed_and_key() -> None:
    """The same numbers from NumPy and hashlib alone, by the recipe of the documentation."""
    import hashlib

    told = b"ember.sampling/1" + (2**64 - 1).to_bytes(8, "little") + "جذر".encode()
    low, high = (int.from_bytes(hashlib.sha256(told).digest()[at : at + 8], "little") for at in (0, 8))
    philox = np.random.Philox(key=low + (high << 64))
    expected = [(number >> 11) * 2.0**-53 for number in philox.random_raw(4).tolist()]
    assert generator(2**64 - 1, "جذر").random(4).tolist() == expected


def test_a_prompt_has_its_numbers_whatever_runs_beside_it() -> None:
    alone = generator(3, "b").random(50)
    company = [generator(3, key) for key in "abc"]
    together = [[one.random() for one in company] for _ in range(50)]  # one token of each prompt after the other
    assert [row[1] for row in together] == alone.tolist()
    assert len({row[0] for row in together} | {row[1] for row in together} | {row[2] for row in together}) == 150


def test_python_s_own_hashing_decides_nothing() -> None:
    program = "from ember.sampling import generator; print(generator(5, 'مفتاح').random())"
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": salt, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for salt in ("0", "1")
    }
    assert told == {f"{generator(5, 'مفتاح').random()}\n"}


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, "1", None])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises(InputError, match="expected an integer from 0 to 18446744073709551615"):
        generator(seed, "a")


def test_keys_that_are_no_unicode_have_numbers_too() -> None:
    assert generator(0, "\ud800").random() != generator(0, "\ud801").random()


# -- properties

LOGITS = st.lists(st.one_of(st.floats(-60, 60, width=32), st.just(-math.inf)), min_size=1, max_size=40).filter(
    lambda row: max(row) > -math.inf
)
UNIFORM = st.floats(0, 1, exclude_max=True)


@given(LOGITS, st.floats(0, 10), st.integers(0, 50), st.floats(0, 1), UNIFORM)
def test_a_drawn_token_has_passed_every_stage(row, temperature, top_k, top_p, uniform) -> None:
    logits = np.array(row, np.float32)
    token = draw(logits, temperature, top_k, top_p, uniform)
    assert 0 <= token < len(logits)
    assert np.isfinite(logits[token])
    if temperature == 0 or top_p == 0:
        assert logits[token] == logits.max()
    if temperature == 0:
        assert token == int(np.argmax(logits))
    if 0 < top_k <= len(logits) and temperature > 1e-3:
        assert logits[token] >= np.sort(logits)[-top_k]


@given(LOGITS, st.floats(0, 1, exclude_max=True))
def test_the_set_of_top_p_exceeds_p_and_nothing_smaller_does(row: list[float], top_p: float) -> None:
    logits = np.array(row)
    probabilities = softmax(logits)
    kept = np.isfinite(keep_top_p(logits, top_p))
    mass = math.fsum(probabilities[kept])
    assert mass > top_p - 1e-12
    assert mass - probabilities[kept].min() <= top_p + 1e-12
    if not kept.all():
        assert probabilities[kept].min() >= probabilities[~kept].max() - 1e-15


@given(LOGITS, st.floats(0.1, 5), UNIFORM)
def test_more_of_the_same_logit_changes_no_draw(row: list[float], temperature: float, uniform: float) -> None:
    """Softmax does not see a constant: a power of two is added without rounding the small integers used here."""
    logits = np.round(np.array(row))
    assert draw(logits, temperature, 0, 1.0, uniform) == draw(logits + 64.0, temperature, 0, 1.0, uniform)


@given(LOGITS)
def test_probabilities_are_probabilities(row: list[float]) -> None:
    found = softmax(np.array(row))
    assert np.all(found >= 0)
    assert math.fsum(found) == pytest.approx(1, abs=1e-12)
