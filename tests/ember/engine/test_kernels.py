"""Kernels against NumPy in float64."""

import numpy as np
import pytest

from ember.engine.fast import FastBackend
from ember.engine.intrinsics import exp32
from ember.engine.reference import ReferenceBackend
from ember.engine.rope import Rope
from ember.engine.team import Team
from ember.numba_support import HAVE_NUMBA, kernel

pytestmark = pytest.mark.skipif(not HAVE_NUMBA, reason="numba is not installed: the fast route does not exist")


@kernel("void(float32[::1], float32[::1])")
def exp_of(x, out):
    for i in range(x.size):
        out[i] = exp32(x[i])


def exp(values) -> np.ndarray:
    x = np.asarray(values, np.float32)
    out = np.empty_like(x)
    exp_of(x, out)
    return out


def test_exp_is_within_two_units_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-87, 88, 400_001), np.linspace(-1, 1, 100_001)]).astype(np.float32)
    right = np.exp(x.astype(np.float64))
    error = np.abs(exp(x) - right) / np.spacing(right.astype(np.float32))
    assert error.max() <= 2.0


def test_exp_at_its_edges() -> None:
    found = exp([0.0, -0.0, -np.inf, -1000.0, -87.5, np.nan, np.inf, 1000.0])
    assert found[:5].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert np.isnan(found[5])
    assert (found[6:] > 1e38).all()


def test_exp_has_the_same_bits_at_every_place_of_a_row() -> None:
    x = np.random.default_rng(0).uniform(-20, 20, 67).astype(np.float32)
    whole = exp(x)
    for start in range(67):
        assert np.array_equal(exp(x[start:].copy()), whole[start:])


@pytest.mark.parametrize("width", [1, 7, 16, 64, 100])
def test_element_wise_kernels_equal_the_reference(width: int) -> None:
    rng = np.random.default_rng(width)
    x, y = rng.standard_normal((2, 9, width)).astype(np.float32) * 4
    weight = rng.standard_normal(width).astype(np.float32)
    fast, plain = FastBackend(None, Team(1)), ReferenceBackend(None, np.float64)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(fast.rms_norm(x, weight, 1e-5, "n"), plain.rms_norm(wide, weight, 1e-5, "n"), rtol=1e-6)
    np.testing.assert_allclose(
        fast.silu_mul(x.copy(), y), plain.silu_mul(wide, y.astype(np.float64)), rtol=2e-6, atol=1e-12
    )
    assert np.array_equal(fast.add(x.copy(), y, "residual"), x + y)


@pytest.mark.parametrize("layout", ["neighbours", "halves"])
def test_rope_turns_pairs_and_keeps_lengths(layout) -> None:
    rng = np.random.default_rng(1)
    rope = Rope(base=10000.0, rotated=8, layout=layout)
    positions = np.array([0, 1, 5, 3000], np.int32)
    x = rng.standard_normal((4, 24)).astype(np.float32)
    right = ReferenceBackend(None, np.float64).rope(x.astype(np.float64), positions, rope, "rope_q")
    for backend in (FastBackend(None, Team(1)), ReferenceBackend(None)):
        found = backend.rope(x.copy(), positions, rope, "rope_q")
        np.testing.assert_allclose(found, right, atol=2e-6)
        np.testing.assert_array_equal(found[0], x[0])  # position 0 does not turn
    # by hand: pair 0 turns by one radian per position
    pair = [0, 1] if layout == "neighbours" else [0, 4]
    a, b = x[1, pair].astype(np.float64)
    np.testing.assert_allclose(right[1, pair], [a * np.cos(1) - b * np.sin(1), a * np.sin(1) + b * np.cos(1)])
