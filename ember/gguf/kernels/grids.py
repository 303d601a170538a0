"""IQ types of one to three bits."""

from typing import Any

import numpy as np

from ember.gguf import grids
from ember.gguf.kernels.halves import READS, half_at, half_to_float, long_at, word_at
from ember.numba_support import helper, kernel

# Globals of this module become constants of its kernels.
_IQ2_XXS, _IQ2_XS, _IQ2_S = grids.IQ2_XXS, grids.IQ2_XS, grids.IQ2_S
_IQ3_XXS, _IQ3_S, _IQ1 = grids.IQ3_XXS, grids.IQ3_S, grids.IQ1
_SIGNS, _EVEN_SIGNS = grids.SIGNS, grids.EVEN_SIGNS
_HALF, _QUARTER, _EIGHTH = np.float32(0.5), np.float32(0.25), np.float32(0.125)


@helper
def write_eight(point: Any, signs: Any, scale: Any, into: Any) -> None:
    """Write scale x point x signs, eight of each."""
    for i in range(8):
        into[i] = scale * np.float32(point[i]) * signs[i]


@helper
def write_fours(first: Any, second: Any, signs: Any, scale: Any, into: Any) -> None:
    """Write two points of four, like one of eight."""
    for i in range(4):
        into[i] = scale * np.float32(first[i]) * signs[i]
        into[4 + i] = scale * np.float32(second[i]) * signs[4 + i]


@helper
def write_offset(point: Any, offset: Any, scale: Any, into: Any) -> None:
    """Write scale x (point + offset), eight of them."""
    for i in range(8):
        into[i] = scale * (np.float32(point[i]) + offset)


@helper
def quarter_scale(scale: Any, four_bits: Any) -> Any:
    """Return scale x (four bits + 1/2) / 4, the scale of a group of IQ2."""
    return scale * (_HALF + np.float32(np.int32(four_bits))) * _QUARTER


@kernel(READS)
def iq2_xxs(raw: Any, out: Any) -> None:
    """Decode IQ2_XXS."""
    for group in range(out.size // 32):
        start = 66 * (group // 8)
        at = start + 2 + 8 * (group % 8)
        rest = long_at(raw, at + 4)
        scale = quarter_scale(half_at(raw, start), rest >> np.uint32(28))
        for i in range(4):
            signs = _SIGNS[_EVEN_SIGNS[rest >> np.uint32(7 * i) & np.uint32(127)]]
            write_eight(_IQ2_XXS[raw[at + i]], signs, scale, out[32 * group + 8 * i :][:8])


@kernel(READS)
def iq2_xs(raw: Any, out: Any) -> None:
    """Decode IQ2_XS."""
    for group in range(out.size // 16):
        start, inside = 74 * (group // 16), group % 16
        scale = quarter_scale(half_at(raw, start), raw[start + 66 + inside // 2] >> inside % 2 * 4 & 15)
        for i in range(2):
            stored = word_at(raw, start + 2 + 4 * inside + 2 * i)
            signs = _SIGNS[_EVEN_SIGNS[stored >> np.uint32(9)]]
            write_eight(_IQ2_XS[stored & np.uint32(511)], signs, scale, out[16 * group + 8 * i :][:8])


@kernel(READS)
def iq2_s(raw: Any, out: Any) -> None:
    """Decode IQ2_S."""
    for group in range(out.size // 16):
        start, inside = 82 * (group // 16), group % 16
        scale = quarter_scale(half_at(raw, start), raw[start + 74 + inside // 2] >> inside % 2 * 4 & 15)
        upper = np.int32(raw[start + 66 + inside // 2]) >> inside % 2 * 4
        for i in range(2):
            at = start + 2 + 2 * inside + i
            point = np.int32(raw[at]) | (upper >> 2 * i & 3) << 8
            write_eight(_IQ2_S[point], _SIGNS[raw[at + 32]], scale, out[16 * group + 8 * i :][:8])


@kernel(READS)
def iq3_xxs(raw: Any, out: Any) -> None:
    """Decode IQ3_XXS."""
    for group in range(out.size // 32):
        start = 98 * (group // 8)
        at, rest = start + 2 + 8 * (group % 8), long_at(raw, start + 66 + 4 * (group % 8))
        scale = half_at(raw, start) * (_HALF + np.float32(np.int32(rest >> np.uint32(28)))) * _HALF
        for i in range(4):
            signs = _SIGNS[_EVEN_SIGNS[rest >> np.uint32(7 * i) & np.uint32(127)]]
            first, second = _IQ3_XXS[raw[at + 2 * i]], _IQ3_XXS[raw[at + 2 * i + 1]]
            write_fours(first, second, signs, scale, out[32 * group + 8 * i :][:8])


@kernel(READS)
def iq3_s(raw: Any, out: Any) -> None:
    """Decode IQ3_S."""
    for group in range(out.size // 32):
        start, inside = 110 * (group // 8), group % 8
        four_bits = np.int32(raw[start + 106 + inside // 2]) >> inside % 2 * 4 & 15
        scale = half_at(raw, start) * np.float32(np.int32(1 + 2 * four_bits))
        at, upper = start + 2 + 8 * inside, np.int32(raw[start + 66 + inside])
        for i in range(4):
            first = _IQ3_S[np.int32(raw[at + 2 * i]) | (upper >> 2 * i & 1) << 8]
            second = _IQ3_S[np.int32(raw[at + 2 * i + 1]) | (upper >> 2 * i + 1 & 1) << 8]
            signs = _SIGNS[raw[start + 74 + 4 * inside + i]]
            write_fours(first, second, signs, scale, out[32 * group + 8 * i :][:8])


@kernel(READS)
def iq1_s(raw: Any, out: Any) -> None:
    """Decode IQ1_S."""
    for group in range(out.size // 32):
        start, inside = 50 * (group // 8), group % 8
        upper = word_at(raw, start + 34 + 2 * inside)
        scale = half_at(raw, start) * np.float32(np.int32(2 * (upper >> np.uint32(12) & np.uint32(7)) + 1))
        offset = -_EIGHTH if upper & np.uint32(0x8000) else _EIGHTH
        for i in range(4):
            high = (upper >> np.uint32(3 * i) & np.uint32(7)) << np.uint32(8)
            point = np.uint32(raw[start + 2 + 4 * inside + i]) | high
            write_offset(_IQ1[point], offset, scale, out[32 * group + 8 * i :][:8])


@helper
def iq1_m_scale(raw: Any, at: int) -> Any:
    """Put the f16 scale together from the top quarters of four u16, the lowest first."""
    bits = np.uint32(0)
    for i in range(4):
        bits |= np.uint32(raw[at + 2 * i + 1] >> 4) << np.uint32(4 * i)
    return half_to_float(bits)


@kernel(READS)
def iq1_m(raw: Any, out: Any) -> None:
    """Decode IQ1_M."""
    for group in range(out.size // 16):
        start, inside = 56 * (group // 16), group % 16
        scales = word_at(raw, start + 48 + inside // 4 * 2)
        three_bits = np.int32(scales >> np.uint32(inside % 4 * 3) & np.uint32(7))
        scale = iq1_m_scale(raw, start + 48) * np.float32(np.int32(2 * three_bits + 1))
        for i in range(2):
            half = np.int32(raw[start + 32 + inside]) >> 4 * i
            point = np.int32(raw[start + 2 * inside + i]) | (half & 7) << 8
            offset = -_EIGHTH if half & 8 else _EIGHTH
            write_offset(_IQ1[point], offset, scale, out[16 * group + 8 * i :][:8])
