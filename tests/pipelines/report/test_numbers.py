"""Every number of a report beside what pandas and NumPy compute from the same run."""

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from scipy.stats import t as student

import pipelines
from pipelines.report import Report, make_report
from pipelines.report.facts import read_facts
from pipelines.report.intervals import by_groups, mcnemar, wilson
from pipelines.report.states import measure


@pytest.fixture(scope="module")
def frame(small: Path) -> pd.DataFrame:
    """Stimuli and answers as pandas reads them, without Ember."""
    answers = pd.concat([pd.read_parquet(path) for path in sorted((small / "generations").glob("*.parquet"))])
    return pd.read_parquet(small / "stimuli.parquet").merge(answers, on="sample_index", suffixes=("", "_answer"))


def test_shares_of_right_answers(report: Report, frame: pd.DataFrame) -> None:
    found = report.record["behaviour"]
    assert (found["all"]["right"], found["all"]["n"]) == (frame["correct"].sum(), len(frame)) == (14, 21)
    for name in ("root", "pattern", "kind"):
        expected = frame.groupby(f"label_{name}")["correct"].agg(["sum", "count"])
        told = {key: (one["right"], one["n"]) for key, one in found["by"][name].items()}
        assert told == {key: (int(row["sum"]), int(row["count"])) for key, row in expected.iterrows()}
    assert "template" not in found["by"]


def test_scores(report: Report, frame: pd.DataFrame) -> None:
    found = report.record["scores"]["expected"]
    masks = {"all": frame["correct"] | True, "right": frame["correct"], "wrong": ~frame["correct"]}
    for name, mask in masks.items():
        part = frame[mask]
        scores = part["expected_log_probability"]
        assert found[name] == pytest.approx(
            {
                "n": len(part),
                "mean": scores.mean(),
                "median": scores.median(),
                "per_token": (scores / part["expected_tokens"]).mean(),
                "first": (part["expected_rank"] == 1).mean(),
                "rank": part["expected_rank"].median(),
            }
        )
    choices = report.record["scores"]["choices"]
    assert choices["right"] == frame["choice_correct"].sum()
    assert choices["chance"] == pytest.approx((1 / frame["choices"].map(len)).mean())


def test_norms_and_cosines(report: Report, small: Path) -> None:
    run = pipelines.load(small)
    for one in report.record["states"]["after_layer"]:
        x = run.matrix(site="after_layer", layer=one["layer"]).astype(np.float64)
        norms = np.linalg.norm(x, axis=1)
        units = x / norms[:, None]
        pairs = [units[i] @ units[j] for i, j in itertools.combinations(range(len(x)), 2)]
        assert one["rows"] == len(x)
        assert one["cosine"] == pytest.approx(np.mean(pairs))
        assert (one["low"], one["median"], one["high"]) == pytest.approx(np.quantile(norms, [0.05, 0.5, 0.95]))


def test_rows_of_zeros_give_a_cosine_of_0(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = pipelines.load(small)
    capture = run.captures[0]
    monkeypatch.setattr("pipelines.report.states.tables.fill", lambda out, _table: out.__setitem__(slice(None), 0.0))
    found = measure(run, capture, 0)
    assert (found.median, found.cosine) == (0.0, 0.0)


@pytest.mark.parametrize(("right", "n"), [(7, 10), (0, 20), (81, 263), (20, 20), (1, 1), (479, 480)])
def test_wilson_is_that_of_scipy(right: int, n: int) -> None:
    expected = binomtest(right, n).proportion_ci(0.95, method="wilson")
    found = wilson(right, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.integers(0, 400), st.integers(1, 400))
def test_wilson_solves_its_equation_and_holds_the_share(right: int, extra: int) -> None:
    n = right + extra
    found = wilson(right, n)
    assert 0 <= found.low <= found.value <= found.high <= 1
    for end in {found.low, found.high} - {0.0, 1.0}:
        assert abs(found.value - end) == pytest.approx(1.959963984540054 * math.sqrt(end * (1 - end) / n), rel=1e-6)


def test_a_bootstrap_over_groups_draws_whole_groups(report: Report, frame: pd.DataFrame) -> None:
    # As it is written down: Philox(20260101), 2,000 draws of as many groups, ratio of sums, 2.5 and 97.5 %, and from
    # the share as much further as Student's point of 5 degrees and the variance of 6 groups say.
    told = report.record["behaviour"]["bootstrap"]["root"]
    ordered = frame.sort_values("source_index")
    sums = ordered.groupby("label_root", sort=False)["correct"].agg(["sum", "count"]).to_numpy(float)
    drawn = np.random.Generator(np.random.Philox(20260101)).integers(6, size=(2000, 6))
    means = [sums[draw, 0].sum() / sums[draw, 1].sum() for draw in drawn]
    share = frame["correct"].mean()
    further = student.ppf(0.975, 5) / norm.ppf(0.975) * math.sqrt(6 / 5)
    ends = np.clip(share + further * (np.quantile(means, [0.025, 0.975]) - share), 0, 1)
    assert (told["low"], told["high"]) == pytest.approx(ends, abs=0.003)
    assert told["groups"] == 6


@pytest.mark.parametrize("n", [5, 8, 20])
def test_intervals_of_few_groups_hold_the_mean_as_often_as_they_say(n: int) -> None:
    """Percentiles alone, of five groups, hold it in 84 % of cases."""
    drawn = np.random.default_rng(n).normal(size=(1000, n))
    intervals = [by_groups(values, np.arange(n), (-math.inf, math.inf)) for values in drawn]
    assert np.mean([low <= 0 <= high for low, high in intervals]) == pytest.approx(0.95, abs=0.02)


def test_a_difference_may_lie_below_zero_and_nothing_beyond_its_limits() -> None:
    values, groups = np.array([-1.0, 0.0, -1.0, -1.0, -1.0]), np.arange(5)
    low, high = by_groups(values, groups, (-1.0, 1.0))
    assert (low, -1.0 < high < 0.2) == (-1.0, True)
    assert by_groups(-values, groups)[1] == 1.0


def test_groups_that_share_their_fate_widen_the_interval() -> None:
    values = np.repeat([1.0, 0.0], 200)
    alone = by_groups(values, np.arange(400))
    together = by_groups(values, np.repeat(np.arange(10), 40))
    assert together[1] - together[0] > 3 * (alone[1] - alone[0])


@pytest.mark.parametrize(("a", "b"), [(5, 0), (1, 8), (10, 10), (40, 71), (499, 500)])
def test_mcnemar_is_the_binomial_test_of_scipy(a: int, b: int) -> None:
    assert mcnemar(a, b) == pytest.approx(binomtest(a, a + b).pvalue)
    assert mcnemar(b, a) == mcnemar(a, b)


def test_mcnemar_of_many_is_near_the_exact_one() -> None:
    assert mcnemar(560, 640) == pytest.approx(binomtest(560, 1200).pvalue, rel=0.01)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(500, 500) == binomtest(500, 1000).pvalue == 1.0
    assert mcnemar(500, 501) == pytest.approx(binomtest(500, 1001).pvalue, rel=1e-6)


def test_facts_stand_in_the_users_order(small: Path) -> None:
    facts = read_facts(small)
    assert [row["source_index"] for row in facts.stimuli] == list(range(21))
    assert [row["stimulus_id"] for row in facts.answers] == [row["id"] for row in facts.stimuli]
    assert facts.config is not None


def test_draws_in_pieces_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values, groups = np.random.default_rng(0).random(300), np.arange(300) % 37
    whole = by_groups(values, groups)
    monkeypatch.setattr("pipelines.report.intervals.PIECE", 111)
    assert by_groups(values, groups) == whole


def test_a_label_of_many_values_is_told_in_one_sentence(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.report.facts.MOST_CLASSES", 5)
    found = make_report(small)
    assert set(found.record["behaviour"]["by"]) == {"kind", "pattern", "root"}
    assert "has 6 values, too many for a figure" in found.html
    assert not any(name.endswith("-root.svg") for name in found.figures)
