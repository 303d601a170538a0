"""The correction for looking at many layers: by hand, at the edge of the null hypothesis, and over whole sweeps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from pipelines.manifest import CaptureRecord
from pipelines.probes import ProbeConfig, probe
from pipelines.probes.metrics import Resampling, drawn_margin, interval
from pipelines.probes.multiplicity import FEWEST, fewest, together
from pipelines.stimuli.record import Stimulus
from pipelines.tails import students
from tests.foundry.probe_run import Word, write_probe_run

ANY = (-np.inf, np.inf)
"""Limits of a number that may be anything."""


def test_intervals_reach_as_many_spreads_as_the_most_deviant_member_strays() -> None:
    random = np.random.default_rng(0)
    found, drawn = [0.1, 0.4, -0.2], [random.normal(m, s, 500) for m, s in ((0.1, 0.1), (0.4, 0.01), (-0.2, 0.3))]
    stray = np.array([[(d[i] - f) / np.std(d) for i in range(500)] for f, d in zip(found, drawn, strict=True)])
    down, up = sorted(stray.max(axis=0))[475], sorted(-stray.min(axis=0))[475]
    reach = [stats.t.isf(stats.norm.sf(z), 29) * np.sqrt(30 / 29) for z in (down, up)]
    for one, f, d in zip(together(found, drawn, 30, 0.9, ANY), found, drawn, strict=True):
        assert one.value == f
        assert one.low == pytest.approx(f - reach[0] * np.std(d), rel=1e-3)
        assert one.high == pytest.approx(f + reach[1] * np.std(d), rel=1e-3)


def test_no_interval_is_narrower_than_that_of_one_normal_number() -> None:
    """Where draws lean to one side (here all are below what was found) the other side keeps its reach."""
    drawn = -np.abs(np.random.default_rng(2).normal(0, 1, 1000))
    [one] = together([0.0], [drawn], 1000, limits=ANY)
    assert one.low <= -2.57 * np.std(drawn)
    assert one.high > 4 * np.std(drawn)


@pytest.mark.parametrize("freedom", [7, 12, 40, 1000])
def test_students_tail_is_never_understated(freedom: int) -> None:
    for normal in np.arange(1.5, 4.6, 0.25):
        exact = stats.t.isf(stats.norm.sf(normal), freedom)
        assert exact * 0.9999 <= students(float(normal), freedom) <= exact * 1.03
    assert np.isfinite(students(1e6, freedom))


def test_students_point_of_five_groups() -> None:
    exact = stats.t.ppf(0.975, 4)
    assert exact <= students(float(stats.norm.ppf(0.975)), 4) <= exact * 1.006


def test_members_that_go_together_cost_nothing_and_others_do() -> None:
    drawn = np.random.default_rng(1).normal(0, 1, (20, 2000))
    [alone] = together([0.0], [drawn[0]], 10_000, limits=ANY)
    twins = together([0.0] * 20, [drawn[0]] * 20, 10_000, limits=ANY)
    strangers = together([0.0] * 20, list(drawn), 10_000, limits=ANY)
    assert twins == [alone] * 20
    assert strangers[0].high > 1.25 * alone.high
    # for 20 independent members, 0.5 % on each side: the 99.975 % point of a normal distribution
    assert strangers[0].high == pytest.approx(3.48, abs=0.35)


def test_a_member_that_never_varies_and_draws_without_rows_are_borne() -> None:
    drawn = [np.array([0.5] * 4), np.array([0.1, np.nan, 0.3, 0.2])]
    constant, other = together([0.5, 0.2], drawn, 8)
    assert (constant.low, constant.high) == (0.5, 0.5)
    assert other.low < 0.2 < other.high
    assert np.isnan(together([0.1], [np.full(3, np.nan)], 8)[0].low)
    assert together([], [], 8) == []


def test_a_margin_of_accuracies_is_not_said_to_leave_what_it_can_be() -> None:
    """Eight groups of which draws give 0, 0.5 or 1: spread 0.408, and the reach of one normal number is over 3."""
    drawn = np.array([0.0, 0.5, 1.0] * 100)
    far = together([0.5], [drawn], 8, limits=ANY)[0]
    assert far.low < 0.5 - 2.57 * np.std(drawn)
    assert far.high > 1.0
    assert together([0.5], [drawn], 8)[0].high == 1.0
    assert together([-0.5], [-drawn], 8)[0].low == -1.0


def test_few_groups_say_nothing_at_this_level() -> None:
    assert FEWEST == 8
    assert fewest([np.arange(80), np.arange(80) % 7]) == 7
    drawn = [np.array([0.4, 0.5, 0.6])]
    assert np.isnan(together([0.5], drawn, 7)[0].low)
    assert together([0.5], drawn, 8)[0].low < 0.5


@pytest.mark.parametrize("count", [10, 40])
def test_the_family_wise_rate_is_kept_where_all_margins_are_truly_zero(count: int) -> None:
    """States and one control are right equally often, in 12 layers: by themselves many families would have a winner.

    At the 95 % level, where 400 families can show a difference; one-sided errors are half of the rest.
    """
    families, alone, corrected = 400, 0, 0
    groups = np.arange(120) % count
    for seed in range(families):
        random = np.random.default_rng(seed)
        draws = Resampling([groups], 300, random)
        told = [
            drawn_margin(random.random(120) < 0.5, [random.random(120) < 0.5], draws) for _ in range(12)
        ]  # fmt: skip
        alone += any(interval(value, drawn, 0.95).low > 0 for value, drawn in told)
        found = together([value for value, _ in told], [drawn for _, drawn in told], count, 0.95)
        corrected += any(one.low > 0 for one in found)
    assert alone / families > 0.15
    assert corrected / families <= 0.05


LAYERS = (0, 1, 2, 3)


def test_random_labels_are_above_their_controls_in_no_family_of_fifty(tmp_path: Path) -> None:
    """50 labels shuffled with 50 seeds, each told by two probes from four layers that know nothing of them."""
    labels = [np.random.default_rng(seed).permutation(np.arange(60) % 2) for seed in range(50)]
    words = [
        Word({f"l{seed:02d}": f"v{labels[seed][i]}" for seed in range(50)}, f"word {i}", (1, i)) for i in range(60)
    ]
    rows = sweep_of(tmp_path, words, lambda layer, _: np.random.default_rng(layer).standard_normal((60, 8)))
    assert len(rows) == 50 * 2 * len(LAYERS)
    assert {row["family"] for row in rows} == {2 * len(LAYERS)}
    assert {row["label"] for row in rows if row["above_controls_corrected"]} == set()
    for row in rows:
        assert row["margin_corrected"] == row["margin"]
        assert row["margin_corrected_low"] <= row["margin"] <= row["margin_corrected_high"]


def test_a_planted_layer_stays_above_when_all_are_allowed_for(tmp_path: Path) -> None:
    words = [Word({"class": f"c{i % 3}"}, f"w {chr(0x628 + i % 20)}{i // 20}", (1, 2 + i % 20, 50)) for i in range(240)]

    def states(layer: int, stimuli: Sequence[Stimulus]) -> Any:
        x = np.random.default_rng(layer).standard_normal((240, 8))
        x[:, :3] += 4 * (layer == 2) * np.eye(3)[[int(s.labels["class"][1:]) for s in stimuli]]
        return x

    rows = sweep_of(tmp_path, words, states)
    assert {row["layer"] for row in rows if row["above_controls_corrected"]} == {2}
    baselines = [row for row in pq.read_table(tmp_path / "out" / "results.parquet").to_pylist() if row["family"] == 0]
    assert {row["features"] for row in baselines} == {"majority", "characters", "tokens"}


def sweep_of(folder: Path, words: Sequence[Word], states: Any) -> list[dict[str, Any]]:
    """Rows of states of a sweep with one strength and a random split."""
    captures = [CaptureRecord("last", "after_layer", LAYERS, "last", 8)]
    run = write_probe_run(
        folder / "run",
        words,
        lambda _c, layer, stimuli: states(layer, stimuli).astype(np.float32),
        width=8,
        captures=captures,
    )
    given = {"runs": (str(run),), "splits": ["random"], "strengths": {"logistic": (0.01,)}, "draws": 300}
    probe(ProbeConfig.model_validate(given | {"output": {"dir": str(folder / "out")}}), scheduler="serial")
    return [row for row in pq.read_table(folder / "out" / "results.parquet").to_pylist() if row["features"] == "states"]
