"""Measures worked out by hand, or by other code that was written independently."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.stats import ortho_group, rankdata, spearmanr
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA

from ember.errors import InputError
from pipelines.errors import IdentityError, RunError
from pipelines.geometry import (
    Fertility,
    distances,
    divergence,
    label_distances,
    linear_cka,
    measure,
    pca_map,
    rsa,
    svcca,
    word_fertility,
)
from pipelines.geometry.fertility import script_of
from pipelines.geometry.similarity import ranks
from pipelines.geometry.sweep import geometry_schema, maps_schema
from pipelines.stimuli.record import Stimulus
from tests.foundry.probe_run import crossed, write_probe_run


def states(rows: int, width: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, width)) + 3


# --- likeness ---------------------------------------------------------------------------------------------------------


def test_cka_by_hand() -> None:
    """Centred x is (-1, 0, 1), centred y (-1, 2, -1): x.y is 0, and with y = x squared the formula gives 0."""
    x, y = np.array([[0.0], [1], [2]]), np.array([[0.0], [3], [0]])
    assert linear_cka(x, y) == pytest.approx(0, abs=1e-15)
    # one column each: the squared correlation
    z = np.array([[0.0], [1], [5]])
    assert linear_cka(x, z) == pytest.approx(np.corrcoef(x[:, 0], z[:, 0])[0, 1] ** 2)


def test_cka_is_the_formula_over_features() -> None:
    x, y = states(30, 5), states(30, 8, 1)
    cx, cy = x - x.mean(0), y - y.mean(0)
    expected = np.linalg.norm(cx.T @ cy) ** 2 / (np.linalg.norm(cx.T @ cx) * np.linalg.norm(cy.T @ cy))
    assert linear_cka(x, y) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 100))
def test_cka_does_not_see_rotation_scale_or_shift(seed: int, scale: float) -> None:
    x = states(20, 6, seed)
    turned = x @ ortho_group.rvs(6, random_state=seed) * scale + 17
    assert linear_cka(x, turned) == pytest.approx(1, abs=1e-9)


def test_cka_of_states_that_do_not_vary_is_not_a_number() -> None:
    assert np.isnan(linear_cka(np.ones((4, 2)), states(4, 2)))


def test_distances_and_rsa_are_those_of_scipy() -> None:
    x, y = states(25, 7), states(25, 4, 2)
    assert np.allclose(distances(x), pdist(x, "correlation"))
    assert rsa(distances(x), distances(y)) == pytest.approx(
        spearmanr(pdist(x, "correlation"), pdist(y, "correlation"))[0]
    )
    model = label_distances(np.arange(25) % 3)
    assert rsa(distances(x), model) == pytest.approx(spearmanr(pdist(x, "correlation"), model)[0])


def test_label_distances_by_hand() -> None:
    assert label_distances(np.array([0, 1, 0])).tolist() == [1, 0, 1]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_ranks_share_ties(values: list[int]) -> None:
    assert np.array_equal(ranks(np.array(values, float)), rankdata(values))


def test_canonical_correlations_are_those_of_sklearn() -> None:
    x = states(200, 3)
    y = np.concatenate([x @ np.diag([1.0, 0, 0]) + 0.5 * states(200, 3, 5), states(200, 1, 6)], axis=1)
    peer = CCA(n_components=3, scale=False, max_iter=5000, tol=1e-12).fit(x, y)
    a, b = peer.transform(x, y)
    expected = [abs(np.corrcoef(a[:, i], b[:, i])[0, 1]) for i in range(3)]
    assert np.allclose(svcca(x, y, kept=1.0), expected, atol=1e-4)


def test_svcca_leaves_out_directions_of_little_variance() -> None:
    x = states(100, 4) * [100, 100, 0.01, 0.01]
    assert svcca(x, x).tolist() == pytest.approx([1, 1])


def test_stimuli_must_be_the_same() -> None:
    with pytest.raises(InputError, match="states of 3 and of 4 stimuli"):
        linear_cka(states(3, 2), states(4, 2))
    with pytest.raises(InputError, match="3 and 6 distances"):
        rsa(distances(states(3, 2)), distances(states(4, 2)))
    with pytest.raises(InputError, match="all the same"):
        svcca(np.ones((5, 2)), states(5, 2))


# --- maps and divergence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 6), (8, 50)])
def test_maps_are_those_of_sklearn_up_to_sign(shape: tuple[int, int]) -> None:
    x = states(*shape) * np.linspace(1, 5, shape[1])
    peer = PCA(2, svd_solver="full").fit(x)
    found = pca_map(x)
    assert np.allclose(np.abs(found.points), np.abs(peer.transform(x)), atol=1e-8)
    assert np.allclose(found.explained, peer.explained_variance_ratio_)


def test_signs_are_fixed_by_the_largest_weight() -> None:
    x = np.outer([-3.0, -1, 1, 3], [0.6, -0.8])
    # the axis is (0.6, -0.8) or its opposite; -0.8 is the largest, so it is turned
    assert pca_map(x, 1).points[:, 0].tolist() == pytest.approx([3, 1, -1, -3])
    assert np.array_equal(pca_map(x, 1).points, pca_map(x.copy(), 1).points)
    with pytest.raises(InputError, match="found 3 components of 4 states of 2 numbers"):
        pca_map(x, 3)


def test_divergence_by_hand() -> None:
    """Means 0 and 4; within each kind the squares sum to 2, over 6 - 2 = 4 degrees: variance 1, so 4 deviations."""
    x = np.array([[-1.0], [0], [1], [3], [4], [5]])
    found = divergence(x, np.array([0, 0, 0, 1, 1, 1], bool), np.random.default_rng(0), draws=99)
    assert found.distance == pytest.approx(4)
    assert found.expected < 2
    # of 20 ways to choose three, two are as far apart
    assert 0.02 <= found.p <= 0.25


def test_divergence_of_no_difference_is_what_shuffling_gives() -> None:
    ps = [divergence(states(40, 5, i), np.arange(40) % 2 == 0, np.random.default_rng(i), 39).p for i in range(60)]
    assert 0.35 < np.mean(ps) < 0.65
    with pytest.raises(InputError, match="found 4 of 4 stimuli of the kind"):
        divergence(states(4, 2), np.ones(4, bool), np.random.default_rng(0))


# --- fertility --------------------------------------------------------------------------------------------------------


def test_fertility_by_hand() -> None:
    """`كتاب of` has 8 + 1 + 2 bytes; tokens: كت, اب, ` o`, f, and an empty one at the start."""
    found = list(word_fertility("كتاب of", [0, 0, 4, 8, 10], [0, 4, 8, 10, 11]))
    assert found == [("ARABIC", Fertility(1, 2, 8, 4)), ("LATIN", Fertility(1, 2, 2, 2))]
    total = found[0][1] + found[1][1]
    assert (total.per_word, total.per_byte, total.per_character) == (2, 0.4, 4 / 6)


def test_a_token_over_two_words_counts_for_both() -> None:
    assert [one.tokens for _, one in word_fertility("a b", [0], [3])] == [1, 1]


def test_scripts() -> None:
    assert [script_of(word) for word in ("كِتَاب:", "abc", "كتab", "12", "дом")] == [
        "ARABIC", "LATIN", "ARABIC", "other", "CYRILLIC",
    ]  # fmt: skip


# --- a run ------------------------------------------------------------------------------------------------------------


def planted(_capture: str, layer: int, stimuli: Sequence[Stimulus]) -> Any:
    x = np.random.default_rng(5).standard_normal((len(stimuli), 8))
    for row, stimulus in enumerate(stimuli):
        x[row, int(stimulus.labels["pattern"][1:])] += 6 * (layer > 0)
    return x.astype(np.float32)


def test_a_run_is_measured(tmp_path: Path) -> None:
    run = write_probe_run(tmp_path / "run", crossed(8, 3, 2), planted, width=8)
    found = measure(run)
    assert found.directory == run / "geometry"
    table = pq.read_table(run / "geometry" / "geometry.parquet")
    assert table.schema.remove_metadata() == geometry_schema()
    rows = table.to_pylist()
    by_layer = {row["layer"]: row for row in rows if (row["measure"], row["other"]) == ("rsa", "pattern")}
    assert by_layer[0]["value"] < 0.1
    assert by_layer[1]["value"] > 0.5 > by_layer[1]["baseline"]
    assert by_layer[1]["p"] == 0.01
    cka = {(row["layer"], row["other_layer"]): row["value"] for row in rows if row["measure"] == "cka"}
    assert cka[1, 2] == pytest.approx(1)
    assert cka[0, 1] < 0.9
    maps = pq.read_table(run / "geometry" / "maps.parquet")
    assert maps.schema.remove_metadata() == maps_schema()
    assert maps.num_rows == 3 * 48
    semantic = json.loads((run / "manifest.json").read_text())["semantic_hash"]
    assert json.loads((run / "geometry" / "manifest.json").read_text())["run"]["semantic_hash"] == semantic


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = write_probe_run(tmp_path / "run", crossed(8, 3, 2), planted, width=8)
    for name in ("a", "b"):
        measure(run, out=tmp_path / name)
    for path in ("geometry.parquet", "maps.parquet", "manifest.json"):
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()


def test_what_cannot_be_measured_says_so(tmp_path: Path) -> None:
    run = write_probe_run(tmp_path / "run", crossed(8, 3, 2), planted, width=8, failed=(1,))
    with pytest.raises(RunError, match="1 of 48 prompts"):
        measure(run)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(IdentityError, match=r"notes\.txt"):
        measure(run, out=tmp_path, partial=True)
    assert measure(run, partial=True).measures
