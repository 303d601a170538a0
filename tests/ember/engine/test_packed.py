"""Products of packed weights: the same bits however they are computed, and right by gguf-py's values in float64."""

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ember.engine.fast import FastBackend
from ember.engine.linear import Linear
from ember.engine.packed import PackedBackend
from ember.engine.packed_kernels import BLOCK_VALUES, PRODUCTS
from ember.engine.team import Team
from ember.engine.weights import WeightStore
from ember.gguf import decode_fast, open_gguf
from ember.gguf.types import TYPES_BY_NAME
from tests.foundry.decoding import random_blocks
from tests.foundry.families import Tiny, tiny_family
from tests.foundry.tiny import tiny_llama

RNG = np.random.default_rng(5)


def stored(name: str, rows: int, width: int, seed: int = 0):
    if name == "F32":
        return np.random.default_rng(seed).standard_normal(rows * width, np.float32).view(np.uint8)
    kind = TYPES_BY_NAME[name]
    return random_blocks(kind, rows * width // kind.block_size, seed)


def by_gguf_py(name: str, raw, rows: int):
    number = gguf.GGMLQuantizationType(TYPES_BY_NAME[name].id)
    with np.errstate(invalid="ignore"):
        return gguf.quants.dequantize(raw.view(np.float32) if name == "F32" else raw, number).reshape(rows, -1)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("width", [256, 1536])
def test_products_equal_gguf_pys_values_in_float64(name, width) -> None:
    raw = stored(name, 11, width, seed=width)
    weight = by_gguf_py(name, raw, 11)
    usable = np.isfinite(weight).all(axis=1)  # random half-precision scales may be infinite
    x = RNG.standard_normal((6, width)).astype(np.float32)
    out = np.empty((6, 11), np.float32)
    PRODUCTS[name](raw, x, out, 0, 11)
    right = x.astype(np.float64) @ weight[usable].T.astype(np.float64)
    size = np.abs(x).astype(np.float64) @ np.abs(weight[usable]).T.astype(np.float64)
    assert (np.abs(out[:, usable] - right) <= 2e-6 * size).all()


def lanes(x, w):
    """A product by its definition: sixteen running sums of fused steps, added pairwise."""
    sums = np.zeros(16, np.float64)
    for a, b in zip(x.reshape(-1, 16), w.reshape(-1, 16), strict=True):
        # the product of two float32 is exact in float64, and so is rounding their sum to float32 almost always
        sums = (a.astype(np.float64) * b.astype(np.float64) + sums).astype(np.float32).astype(np.float64)
    sums = sums.astype(np.float32)
    for count in (8, 4, 2, 1):
        sums = sums[:count] + sums[count:]
    return sums[0]


def test_a_product_is_what_its_definition_says() -> None:
    x, w = RNG.standard_normal((2, 64)).astype(np.float32)
    out = np.empty((1, 1), np.float32)
    PRODUCTS["F32"](w.view(np.uint8), x.reshape(1, -1), out, 0, 1)
    assert out[0, 0] == lanes(x, w)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(PRODUCTS)), st.integers(1, 9), st.integers(1, 23), st.data(), st.integers(0, 2**32 - 1))
def test_bits_depend_on_the_row_and_the_weight_alone(name, rows, count, data, seed) -> None:
    width = BLOCK_VALUES[name] * data.draw(st.integers(1, 5))
    raw = stored(name, count, width, seed)
    x = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    whole = np.empty((rows, count), np.float32)
    PRODUCTS[name](raw, x, whole, 0, count)
    pieces, cut = np.empty_like(whole), data.draw(st.integers(0, count))
    PRODUCTS[name](raw, x, pieces, cut, count)
    PRODUCTS[name](raw, x, pieces, 0, cut)
    assert np.array_equal(whole, pieces, equal_nan=True)
    for row in range(rows):
        alone = np.empty((1, count), np.float32)
        PRODUCTS[name](raw, x[row : row + 1], alone, 0, count)
        assert np.array_equal(whole[row : row + 1], alone, equal_nan=True)
    decoded = np.empty(count * width, np.float32)
    decode_fast.decode(raw, TYPES_BY_NAME[name], decoded)
    by_f32 = np.empty_like(whole)
    PRODUCTS["F32"](decoded.view(np.uint8), x, by_f32, 0, count)
    assert np.array_equal(whole, by_f32, equal_nan=True)


def backends(path, *threads):
    file = open_gguf(path)
    store = WeightStore(file, decode_fast.decode, "streamed")
    return file, [PackedBackend(FastBackend(store, Team(n))) for n in threads]


@pytest.mark.parametrize("quant", ["Q8_0", "Q5_0", "F16", "Q4_1"])
def test_threads_slices_and_types_without_kernel_change_no_bit(tmp_path, monkeypatch, quant) -> None:
    path = tiny_llama(tmp_path / "m.gguf", seed=3, d=96, quant=quant, vocab=701)
    monkeypatch.setattr("ember.engine.team.ALONE", 1)
    monkeypatch.setattr("ember.engine.packed.DECODED_BYTES", 4 * 96 * 8)
    monkeypatch.setattr("ember.engine.packed.LOGIT_BYTES", 4 * 5 * 100)
    file, (one, three) = backends(path, 1, 3)
    info = file.tensors["token_embd.weight"]
    weight = Linear(info, "head", 0, info.shape[0])
    x = RNG.standard_normal((5, 96)).astype(np.float32)
    whole = one.matmul(x, weight).copy()
    assert np.array_equal(three.matmul(x, weight), whole)
    slices = [(start, stop, part.copy()) for start, stop, part in three.head_slices(x, weight)]
    assert [s[:2] for s in slices] == [(n, min(n + 100, 701)) for n in range(0, 701, 100)]
    assert np.array_equal(np.concatenate([part for _, _, part in slices], axis=1), whole)
    right = (
        x.astype(np.float64) @ by_gguf_py(quant, np.array(file.raw("token_embd.weight")), 701).T
        if quant not in ("F16",)
        else x.astype(np.float64) @ file.view("token_embd.weight").astype(np.float64).T
    )
    np.testing.assert_allclose(whole, right, rtol=1e-4, atol=1e-4)


def test_widths_that_no_lane_fits(tmp_path) -> None:
    path = tiny_family(tmp_path / "g.gguf", Tiny("gpt2", n_layers=2, d=36, n_heads=4, ffn=100))
    file, (backend,) = backends(path, 2)
    info = file.tensors["blk.0.ffn_down.weight"]
    x = RNG.standard_normal((3, info.shape[1])).astype(np.float32)
    right = x.astype(np.float64) @ file.view("blk.0.ffn_down.weight").astype(np.float64).T
    np.testing.assert_allclose(backend.matmul(x, Linear(info, "down", 0, info.shape[0])), right, rtol=1e-5, atol=1e-5)
