"""Tiles against attention written out per row in float64, with sharing, grouped heads, windows and pruned rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ember.engine.attention import BLOCK, plan_tiles
from ember.engine.cache import KVCache, KVShape
from ember.engine.fast import FastBackend
from ember.engine.reference import ReferenceBackend, softmax
from ember.engine.team import Team
from ember.units import build_tree


def expected(q, k, v, tree, wanted, heads, scale, window):
    """One row at a time, one head at a time."""
    n_heads, n_kv = heads
    size = q.shape[1] // n_heads
    out = np.zeros((len(wanted), n_heads * size))
    for line, row in enumerate(wanted):
        path = tree.path(int(tree.owners[row]))
        at = int(tree.positions[row])
        seen = path[max(0, at - window + 1) if window else 0 : at + 1]
        for head in range(n_heads):
            g = head // (n_heads // n_kv)
            query = q[line, head * size : (head + 1) * size].astype(np.float64)
            keys = k[seen, g * size : (g + 1) * size].astype(np.float64)
            scores = keys @ query * scale
            weights = np.exp(scores - scores.max())
            out[line, head * size : (head + 1) * size] = weights @ v[seen, g * size : (g + 1) * size] / weights.sum()
    return out


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 70), st.integers(1, 40)), min_size=1, max_size=4),
    heads=st.sampled_from([(4, 4), (6, 2), (3, 1)]),
    window=st.sampled_from([0, 1, 5, 32, 33]),
    seed=st.integers(0, 2**31),
    size=st.sampled_from([8, 16, 24, 80]),
)
def test_both_routes_equal_attention_row_by_row(lengths, heads, window, seed, size) -> None:
    rng = np.random.default_rng(seed)
    stem = rng.integers(0, 50, 70)
    tree = build_tree([np.concatenate([stem[:a], rng.integers(0, 50, b)]).astype(np.int32) for a, b in lengths])
    rows = len(tree.tokens)
    wanted = np.flatnonzero(rng.random(rows) < 0.7).astype(np.int32)
    if not len(wanted):
        wanted = np.array([rows - 1], np.int32)
    q = rng.standard_normal((len(wanted), heads[0] * size), np.float32)
    k = np.concatenate(
        [rng.standard_normal((rows, heads[1] * size), np.float32), np.zeros((1, heads[1] * size), np.float32)]
    )
    v = np.concatenate(
        [rng.standard_normal((rows, heads[1] * size), np.float32), np.zeros((1, heads[1] * size), np.float32)]
    )
    groups = plan_tiles(tree, wanted, window)
    assert all(g.first_query % BLOCK == g.first_key % BLOCK == g.keys.shape[1] % BLOCK == 0 for g in groups)
    right = expected(q, k, v, tree, wanted, heads, size**-0.5, window)
    for backend in (ReferenceBackend(None), FastBackend(None, Team(1))):  # attention reads no weights
        plan = backend.plan_attention(tree, wanted, window)
        found = backend.attend(q, k, v, plan, heads, size**-0.5)
        np.testing.assert_allclose(found, right, atol=2e-6)


def test_softmax_of_a_fully_masked_row_is_uniform() -> None:
    scores = np.full((2, 4), -np.inf, np.float32)
    scores[1, :2] = 0
    np.testing.assert_array_equal(softmax(scores), [[0.25] * 4, [0.5, 0.5, 0, 0]])


@pytest.mark.parametrize("window", [1, 4])
def test_a_window_of_w_sees_its_own_and_the_w_minus_1_positions_before(window: int) -> None:
    tree = build_tree([np.arange(8, dtype=np.int32)])
    everything = np.arange(8, dtype=np.int32)
    q = np.ones((8, 4), np.float32)
    k = np.zeros((9, 4), np.float32)
    v = np.zeros((9, 4), np.float32)
    v[0] = 1  # only the first token's value is not zero
    for backend in (ReferenceBackend(None), FastBackend(None, Team(1))):
        found = backend.attend(q, k, v, backend.plan_attention(tree, everything, window), (1, 1), 1.0)[:, 0]
        assert (found > 0).tolist() == [position < window for position in range(8)]


@pytest.mark.parametrize("size", [16, 40])
def test_a_cached_query_gets_the_bits_that_a_prefill_would_give(size) -> None:
    rng, backend, lengths = np.random.default_rng(size), FastBackend(None, Team(1)), (1, 7, 40)
    tree = build_tree([rng.integers(0, 1000, n).astype(np.int32) for n in lengths])
    q = rng.standard_normal((3, 4 * size), np.float32)
    k, v = (np.concatenate([rng.standard_normal((48, 2 * n), np.float32), np.zeros((1, 2 * n), np.float32)])
            for n in (size, size + 3))  # fmt: skip
    for window in (0, 5):
        right = backend.attend(q, k, v, backend.plan_attention(tree, tree.ends, window), (4, 2), 0.3).copy()
        cache = KVCache([n + 2 for n in lengths], [KVShape(2, size, size + 3)])
        for prompt, n in enumerate(lengths):
            cache.store(0, prompt, 0, k[tree.path(prompt)], v[tree.path(prompt)])
            cache.cursors[prompt] = n - 1
        seen = cache.seen(0, np.arange(3), window)
        assert np.array_equal(backend.attend_cached(q, cache.layer(0), seen, (4, 2), 0.3), right)
