"""A right model agrees, a wrong one does not, and figures are those of the definition."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ember
from ember.errors import InputError
from ember.sites import SITES
from ember.validation.compare import compare, tolerance_for
from ember.validation.figures import cosine, disagreement
from ember.validation.recording import Recording, read_recording
from tests.foundry.tiny import tiny_llama


@pytest.fixture(scope="module")
def recording(recorded: Path) -> Recording:
    return read_recording(recorded)


def changed(recording: Recording, key: str, values: np.ndarray) -> Recording:
    return replace(recording, arrays={**recording.arrays, key: values})


def test_figures_by_hand() -> None:
    theirs = np.array([[3.0, -4.0], [1.0, 0.0]], np.float32)
    ours = np.array([[3.0, -3.5], [0.0, 1.0]], np.float32)
    assert disagreement(ours, theirs).tolist() == pytest.approx([0.5 / 12.5**0.5, 2**0.5])
    assert cosine(ours, theirs).tolist() == pytest.approx([23 / (5 * 21.25**0.5), 0.0])
    broken = np.array([[np.nan, 0.0]], np.float32)
    assert disagreement(broken, theirs[:1]) == [np.inf]
    assert cosine(broken, theirs[:1]) == [-1.0]


@pytest.mark.parametrize("route", ["reference", "fast"])
def test_a_right_model_agrees_at_every_site_and_step(tiny: Path, recording: Recording, route: str) -> None:
    found = compare(ember.open(tiny, route=route), recording)
    assert found.agrees
    assert found.problems() == []
    assert found.rung == "activation reference"
    assert found.sites == tuple(SITES)
    assert {(one.site, one.layer) for one in found.figures} == {
        (site, layer) for site in SITES for layer in (range(3) if SITES[site].per_layer else [-1])
    }
    assert (found.top1.same, found.greedy.same, found.greedy.total) == (5, 60, 60)


def test_an_error_is_named_where_it_first_shows(tiny: Path, recording: Recording) -> None:
    moved = recording.arrays["mlp_contrib"].copy()
    moved[3, 1, 7] += 1e-3
    found = compare(ember.open(tiny), changed(recording, "mlp_contrib", moved))
    assert not found.agrees
    assert found.rung is None
    (problem,) = found.problems()
    assert problem.startswith("after_mlp of layer 1: max|d|/rms ")
    assert "on prompt 3" in problem


def test_another_models_weights_do_not_agree(tmp_path: Path, recording: Recording) -> None:
    found = compare(ember.open(tiny_llama(tmp_path / "o.gguf", seed=99, n_heads=4, tied=True, context=640)), recording)
    assert not found.agrees
    assert found.top1.same < found.top1.total
    assert any(problem.startswith("greedy ids") for problem in found.problems())


def test_a_recording_of_logits_alone_reaches_the_lower_rung(tiny: Path, recording: Recording) -> None:
    found = compare(ember.open(tiny), replace(recording, arrays={"logits": recording.arrays["logits"]}))
    assert (found.rung, found.sites, found.greedy) == ("golden logits", ("after_logits",), None)


def test_a_choice_within_rounding_is_no_error_and_one_beyond_is(tiny: Path, recording: Recording) -> None:
    ids, margins = (values.copy() for values in recording.greedy)
    ids[0, 5] += 1
    far = compare(ember.open(tiny), changed(recording, "greedy", ids))
    assert (far.agrees, far.greedy.same, far.greedy.too_close) == (False, 53, 0)
    margins[0, 5] = 0.0
    close = compare(ember.open(tiny), changed(changed(recording, "greedy", ids), "greedy_margin", margins))
    assert (close.agrees, close.greedy.same, close.greedy.too_close) == (True, 53, 1)
    assert str(close.greedy) == "53/54 and 1 too close to call"


def test_long_prompts_are_allowed_what_float32_angles_cost(tiny: Path, recording: Recording) -> None:
    found = compare(ember.open(tiny), recording)
    assert found.lengths == (1, 2, 33, 70, 530)
    assert found.bounds["after_layer"] == pytest.approx([2e-5] * 4 + [2e-5 + 530 * 4e-8])
    exact = compare(ember.open(tiny), replace(recording, about={"name": "x", "angles": "float64"}))
    assert set(exact.bounds["after_layer"]) == {2e-5}


def test_a_recording_of_another_shape_is_refused(tmp_path: Path, recording: Recording) -> None:
    other = ember.open(tiny_llama(tmp_path / "o.gguf", n_layers=2, context=640))
    with pytest.raises(InputError, match=r"before_layer is recorded as \[3, 64\].*gives \[2, 64\].*another model"):
        compare(other, recording)


def test_contributions_of_real_models_have_a_bound_of_their_own() -> None:
    assert tolerance_for(640, "after_mlp").bound > tolerance_for(640, "after_layer").bound
    assert tolerance_for(64, "after_mlp") == tolerance_for(64, "after_layer")
