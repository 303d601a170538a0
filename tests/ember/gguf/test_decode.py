"""Decoded values, bit for bit those of gguf-py, by NumPy and by the compiled kernels."""

import struct
from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ember.errors import InputError, UnsupportedError
from ember.gguf import decode, decode_fast
from ember.gguf.kernels.halves import half_at
from ember.gguf.types import DECODED, QUANT_TYPES, TYPES_BY_NAME, QuantType
from ember.numba_support import HAVE_NUMBA

TYPES = sorted(DECODED)
ROUTES = {"numpy": decode.decode, "fast": decode_fast.decode}
Decode = Callable[[Any, QuantType, Any], None]
# float16 scales at every edge: zeros, subnormals, the smallest and largest normal, one, infinities, NaNs
EDGE_HALVES = [0x0000, 0x8000, 0x0001, 0x03FF, 0x8001, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
SCALES_AT = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q4_K": [0, 2], "Q6_K": [208]}


def by_gguf_py(raw: NDArray[np.uint8], kind: QuantType) -> NDArray[np.float32]:
    number = gguf.GGMLQuantizationType(kind.id)
    stored = raw.view({"F32": np.float32, "F16": np.float16}.get(kind.name, np.uint8))
    with np.errstate(all="ignore"):
        return np.asarray(gguf.quants.dequantize(stored, number), np.float32).reshape(-1)


def by_ember(raw: NDArray[np.uint8], kind: QuantType, route: Decode) -> NDArray[np.float32]:
    out = np.full(raw.size // kind.type_size * kind.block_size, -7777, np.float32)
    route(raw, kind, out)
    return out


def assert_same_bits(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    """Equal bits, signs of zero included. Which of two NaNs comes out of a sum is the processor's choice."""
    nan = np.isnan(theirs)
    assert np.array_equal(np.isnan(ours), nan)
    differ = (ours.view(np.uint32) != theirs.view(np.uint32)) & ~nan
    assert not differ.any(), f"{differ.sum()} values differ, first at {np.flatnonzero(differ)[:3]}"


def random_blocks(kind: QuantType, blocks: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, blocks * kind.type_size, dtype=np.uint8)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", TYPES)
def test_random_bytes_decode_as_in_gguf_py(name: str, route: str) -> None:
    kind = TYPES_BY_NAME[name]
    raw = random_blocks(kind, 5000, seed=1)
    assert_same_bits(by_ember(raw, kind, ROUTES[route]), by_gguf_py(raw, kind))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", SCALES_AT)
def test_edge_scales_decode_as_in_gguf_py(name: str, route: str) -> None:
    kind = TYPES_BY_NAME[name]
    pairs = [(a, b) for a in EDGE_HALVES for b in EDGE_HALVES]
    for fill in (0x00, 0xFF, 0x80, 0x7F, None):
        blocks = random_blocks(kind, len(pairs), seed=2).reshape(-1, kind.type_size)
        if fill is not None:
            blocks[:] = fill
        for row, halves in zip(blocks, pairs, strict=True):
            for at, half in zip(SCALES_AT[name], halves, strict=False):
                row[at : at + 2] = np.frombuffer(struct.pack("<H", half), np.uint8)
        raw = blocks.reshape(-1)
        assert_same_bits(by_ember(raw, kind, ROUTES[route]), by_gguf_py(raw, kind))


@settings(max_examples=60, deadline=None)
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


def packed(layout: str, *values: Any) -> NDArray[np.uint8]:
    return np.frombuffer(struct.pack(f"<{layout}", *values), np.uint8)


@pytest.mark.parametrize("route", ROUTES)
class TestByHand:
    """Blocks whose bytes are spelled out and whose values are known without any other program."""

    def test_q8_0(self, route: str) -> None:
        raw = packed("e32b", 0.5, *range(-16, 16))
        assert by_ember(raw, TYPES_BY_NAME["Q8_0"], ROUTES[route]).tolist() == [i / 2 for i in range(-16, 16)]

    def test_q8_0_saturated_and_negative_zero(self, route: str) -> None:
        raw = packed("e32b", -2.0, *[-128, 127, 0, 1] * 8)
        found = by_ember(raw, TYPES_BY_NAME["Q8_0"], ROUTES[route])
        assert found.tolist() == [256, -254, 0, -2] * 8
        assert np.signbit(found[2])

    def test_q4_0(self, route: str) -> None:
        raw = packed("e16B", 2.0, *[i | (15 - i) << 4 for i in range(16)])
        expected = [2.0 * (i - 8) for i in range(16)] + [2.0 * (7 - i) for i in range(16)]
        assert by_ember(raw, TYPES_BY_NAME["Q4_0"], ROUTES[route]).tolist() == expected

    def test_q4_1(self, route: str) -> None:
        raw = packed("ee16B", 0.25, -3.0, *[i | (15 - i) << 4 for i in range(16)])
        expected = [0.25 * i - 3 for i in range(16)] + [0.25 * (15 - i) - 3 for i in range(16)]
        assert by_ember(raw, TYPES_BY_NAME["Q4_1"], ROUTES[route]).tolist() == expected

    def test_q4_k(self, route: str) -> None:
        """Scales 1 to 8 and minima 33 to 40, the last four of each with their upper bits among the first four."""
        scales, minima = list(range(1, 9)), list(range(33, 41))
        six_bits = [scales[i] | (scales[i + 4] >> 4) << 6 for i in range(4)]
        six_bits += [minima[i] | (minima[i + 4] >> 4) << 6 for i in range(4)]
        six_bits += [(scales[i + 4] & 15) | (minima[i + 4] & 15) << 4 for i in range(4)]
        raw = packed("ee12B128B", 0.5, 0.25, *six_bits, *[(i % 16) | (i % 7) << 4 for i in range(128)])
        expected = []
        for group in range(8):
            for i in range(32):
                byte = 32 * (group // 2) + i
                value = byte % 16 if group % 2 == 0 else byte % 7
                expected.append(0.5 * scales[group] * value - 0.25 * minima[group])
        assert by_ember(raw, TYPES_BY_NAME["Q4_K"], ROUTES[route]).tolist() == expected

    def test_q6_k(self, route: str) -> None:
        values = [(7 * i + 3) % 64 for i in range(256)]
        low, high = [0] * 128, [0] * 64
        for i, value in enumerate(values):
            half, quarter, column = i // 128, i % 128 // 32, i % 32
            low[64 * half + 32 * (quarter % 2) + column] |= (value & 15) << 4 * (quarter // 2)
            high[32 * half + column] |= (value >> 4) << 2 * quarter
        scales = list(range(-8, 8))
        raw = packed("128B64B16be", *low, *high, *scales, 0.125)
        expected = [0.125 * scales[i // 16] * (value - 32) for i, value in enumerate(values)]
        assert by_ember(raw, TYPES_BY_NAME["Q6_K"], ROUTES[route]).tolist() == expected

    def test_bf16(self, route: str) -> None:
        raw = packed("4H", 0x3F80, 0xC000, 0x0000, 0x7F80)
        assert by_ember(raw, TYPES_BY_NAME["BF16"], ROUTES[route]).tolist() == [1.0, -2.0, 0.0, float("inf")]

    def test_f32_is_copied_as_it_is(self, route: str) -> None:
        bits = np.array([0x7FA00001, 0xFFC12345, 1, 0x80000000, 0x3F800000], np.uint32)
        found = by_ember(bits.view(np.uint8), TYPES_BY_NAME["F32"], ROUTES[route])
        assert found.view(np.uint32).tolist() == bits.tolist()


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
    assert set(decode.DECODERS) == DECODED
    assert set(decode_fast.KERNELS) <= DECODED
    assert {kind.name for kind in QUANT_TYPES.values() if kind.supported} == DECODED


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
