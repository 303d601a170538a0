"""Decoded values, bit for bit those of gguf-py, by NumPy and by the compiled kernels."""

import json

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ember.errors import InputError, UnsupportedError
from ember.gguf import decode, decode_fast
from ember.gguf.formats import DECODERS
from ember.gguf.kernels.halves import half_at
from ember.gguf.types import DECODED, QUANT_TYPES, TYPES_BY_NAME
from ember.numba_support import HAVE_NUMBA
from tests.foundry.blocks import SCALES_AT, put_halves
from tests.foundry.decoding import ROUTES, assert_same_bits, by_ember, by_gguf_py, random_blocks
from tests.foundry.record_decoding import RECORD, RECORDED, digest, seeded_blocks

TYPES = sorted(DECODED)
# float16 scales at every edge: zeros, subnormals, the smallest and largest normal, one, infinities, NaNs
EDGE_HALVES = [0x0000, 0x8000, 0x0001, 0x03FF, 0x8001, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
EDGE_PAIRS = np.array([(a, b) for a in EDGE_HALVES for b in EDGE_HALVES], np.uint16)
HALF_SCALED = sorted({*SCALES_AT, "IQ1_M"} - {"F16"})
BYTE_SCALES = {"MXFP4": [0], "NVFP4": [0, 1, 2, 3]}
FILLS = (0x00, 0xFF, 0x80, 0x7F, None)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", TYPES)
def test_random_bytes_decode_as_in_gguf_py(name: str, route: str) -> None:
    kind = TYPES_BY_NAME[name]
    raw = random_blocks(kind, 5000, seed=1)
    assert_same_bits(by_ember(raw, kind, ROUTES[route]), by_gguf_py(raw, kind))


def filled_blocks(name: str, count: int, fill: int | None) -> NDArray[np.uint8]:
    """Blocks [count, bytes] all of one byte, or random."""
    blocks = random_blocks(TYPES_BY_NAME[name], count, seed=2).reshape(count, -1)
    return blocks if fill is None else np.full_like(blocks, fill)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", HALF_SCALED)
def test_edge_scales_decode_as_in_gguf_py(name: str, route: str, fill: int | None) -> None:
    """Every edge of a scale, beside every edge of the scale of minima, on least, greatest and random quants."""
    blocks = filled_blocks(name, len(EDGE_PAIRS), fill)
    put_halves(blocks, name, *EDGE_PAIRS.T)
    raw, kind = blocks.reshape(-1), TYPES_BY_NAME[name]
    assert_same_bits(by_ember(raw, kind, ROUTES[route]), by_gguf_py(raw, kind))


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", BYTE_SCALES)
def test_every_scale_of_a_byte_decodes_as_in_gguf_py(name: str, route: str, fill: int | None) -> None:
    """MXFP4's exponents 0, 1 (subnormal) and 255 (2^127, no NaN), NVFP4's 0x7F (zero) among them."""
    blocks = filled_blocks(name, 256, fill)
    for shift, at in enumerate(BYTE_SCALES[name]):
        blocks[:, at] = np.roll(np.arange(256), 50 * shift)
    raw, kind = blocks.reshape(-1), TYPES_BY_NAME[name]
    assert_same_bits(by_ember(raw, kind, ROUTES[route]), by_gguf_py(raw, kind))


def test_every_type_has_its_edges_tested() -> None:
    assert {*HALF_SCALED, *BYTE_SCALES, "F32", "F16", "BF16"} == DECODED


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", HALF_SCALED)
def test_infinite_and_undefined_scales_give_no_finite_value(name: str, route: str) -> None:
    """Defined, not refused: infinity times a weight (NaN where that is 0), NaN; whoever computes with them names it."""
    blocks = filled_blocks(name, 3, None)
    put_halves(blocks, name, np.array([0x7C00, 0xFC00, 0x7E00], np.uint16), np.zeros(3, np.uint16))
    values = by_ember(blocks.reshape(-1), TYPES_BY_NAME[name], ROUTES[route]).reshape(3, -1)
    assert not np.isfinite(values).any()
    assert np.isnan(values[2]).all()


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(TYPES), blocks=st.integers(1, 9), data=st.data())
def test_any_bytes_decode_as_in_gguf_py(name: str, blocks: int, data: st.DataObject) -> None:
    kind = TYPES_BY_NAME[name]
    size = blocks * kind.type_size
    raw = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    expected = by_gguf_py(raw, kind)
    for route in ROUTES.values():
        assert_same_bits(by_ember(raw, kind, route), expected)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(TYPES), start=st.integers(0, 19), count=st.integers(0, 20))
def test_a_range_of_blocks_decodes_to_that_range(name: str, start: int, count: int) -> None:
    kind = TYPES_BY_NAME[name]
    raw = random_blocks(kind, 40, seed=3)
    whole = by_ember(raw, kind, decode.decode)
    for route in ROUTES.values():
        buffer = np.full((40, kind.block_size), 5, np.float32)
        piece = raw[start * kind.type_size : (start + count) * kind.type_size]
        route(piece, kind, buffer[start : start + count])
        expected = np.full_like(buffer, 5)
        expected[start : start + count] = whole.reshape(40, -1)[start : start + count]
        assert_same_bits(buffer.reshape(-1), expected.reshape(-1))


@pytest.mark.parametrize("name", TYPES)
def test_more_blocks_than_one_chunk(name: str) -> None:
    kind = TYPES_BY_NAME[name]
    blocks = decode.CHUNK_VALUES // kind.block_size + 3
    raw = random_blocks(kind, blocks, seed=4)
    assert_same_bits(by_ember(raw, kind, decode.decode), by_ember(raw, kind, decode_fast.decode))


def test_every_half_precision_number() -> None:
    halves = np.arange(65536, dtype=np.uint16)
    raw, expected = halves.view(np.uint8), halves.view(np.float16).astype(np.float32)
    for route in ROUTES.values():
        found = by_ember(raw, TYPES_BY_NAME["F16"], route)
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))
    assert half_at(raw, 2 * 0x3C00) == 1.0


def test_every_bfloat16_number() -> None:
    upper = np.arange(65536, dtype=np.uint32)
    for route in ROUTES.values():
        found = by_ember(upper.astype("<u2").view(np.uint8), TYPES_BY_NAME["BF16"], route)
        assert np.array_equal(found.view(np.uint32), upper << 16)


@pytest.mark.parametrize("route", ROUTES)
class TestRefusals:
    def test_type_without_decoder(self, route: str) -> None:
        with pytest.raises(UnsupportedError, match=r"Q8_K \(type id 15\) is not decoded; supported types: F32"):
            ROUTES[route](np.zeros(292, np.uint8), QUANT_TYPES[15], np.zeros(256, np.float32))

    @pytest.mark.parametrize(("size", "values"), [(33, 32), (34, 31), (68, 32), (0, 32)])
    def test_sizes_that_do_not_fit(self, route: str, size: int, values: int) -> None:
        with pytest.raises(InputError, match="blocks of 34 bytes and 32 values are expected"):
            ROUTES[route](np.zeros(size, np.uint8), TYPES_BY_NAME["Q8_0"], np.zeros(values, np.float32))

    def test_buffers_that_cannot_be_filled(self, route: str) -> None:
        raw, kind = np.zeros(68, np.uint8), TYPES_BY_NAME["Q8_0"]
        frozen = np.zeros(64, np.float32)
        frozen.flags.writeable = False
        for buffer in (np.zeros(64), np.zeros((64, 2), np.float32)[:, 0], np.zeros((2, 32), np.float32).T, frozen):
            with pytest.raises(InputError, match="writable C-contiguous float32 is expected"):
                ROUTES[route](raw, kind, buffer)

    def test_stored_values_that_are_no_bytes(self, route: str) -> None:
        for raw in (np.zeros(68, np.int8), np.zeros((2, 34), np.uint8), np.zeros(136, np.uint8)[::2]):
            with pytest.raises(InputError, match=r"contiguous uint8 \[bytes\] is expected"):
                ROUTES[route](raw, TYPES_BY_NAME["Q8_0"], np.zeros(64, np.float32))


def test_tables_agree() -> None:
    assert set(DECODERS) == DECODED
    assert set(decode_fast.KERNELS) == (DECODED - {"F32", "BF16"} if HAVE_NUMBA else set())
    assert {kind.name for kind in QUANT_TYPES.values() if kind.supported} == DECODED


def test_types_are_those_that_gguf_py_decodes() -> None:
    for kind in QUANT_TYPES.values():
        if kind.known_size and not kind.supported:
            with pytest.raises(NotImplementedError):
                gguf.quants.dequantize(np.zeros((1, kind.type_size), np.uint8), gguf.GGMLQuantizationType(kind.id))


def test_sizes_are_those_of_gguf_py() -> None:
    theirs = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {number: (kind.block_size, kind.type_size) for number, kind in QUANT_TYPES.items() if kind.known_size}
    assert ours == theirs
    assert {int(kind): kind.name for kind in gguf.GGMLQuantizationType} == {n: QUANT_TYPES[n].name for n in theirs}


@pytest.mark.skipif(not HAVE_NUMBA, reason="numba is not installed (extra `fast`)")
def test_kernels_work_on_read_only_input() -> None:
    """Tensors are read-only views of the mapped file; a kernel must not demand more."""
    raw = random_blocks(TYPES_BY_NAME["Q8_0"], 4, seed=5)
    expected = by_ember(raw, TYPES_BY_NAME["Q8_0"], decode.decode)
    raw.flags.writeable = False
    assert_same_bits(by_ember(raw, TYPES_BY_NAME["Q8_0"], decode_fast.decode), expected)


@pytest.mark.realmodel
def test_smollm2_decodes_as_in_gguf_py(smollm2) -> None:
    from ember.gguf import open_gguf

    file = open_gguf(smollm2)
    for name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.29.ffn_down.weight", "output_norm.weight"):
        kind = file.tensors[name].type
        expected = by_gguf_py(file.raw(name), kind)
        for route in ROUTES.values():
            assert_same_bits(by_ember(file.raw(name), kind, route), expected)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", RECORDED)
def test_decodes_as_ggml_itself_did(name: str, route: str) -> None:
    """Digests of what ggml's C code made of the same blocks (tests/foundry/record_decoding.py)."""
    recorded = json.loads(RECORD.read_text())["types"][name]
    raw = seeded_blocks(TYPES_BY_NAME[name])
    assert digest(raw) == recorded["blocks"]
    assert digest(by_ember(raw, TYPES_BY_NAME[name], ROUTES[route])) == recorded["values"]
