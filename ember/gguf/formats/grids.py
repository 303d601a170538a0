"""IQ types of one to three bits: groups of 8 or 4 weights are a point of a fixed grid, with signs or an offset."""

import numpy as np
from numpy.typing import NDArray

from ember.gguf import grids
from ember.gguf.formats.bits import Bytes, Floats, bit_planes, crumbs, half, in_pairs, words

_SEVEN_BITS = np.array([0, 7, 14, 21], np.uint32)
_TRIPLETS = np.array([0, 3, 6, 9], np.uint16)
_HALF, _QUARTER, _EIGHTH = np.float32(0.5), np.float32(0.25), np.float32(0.125)


def iq2_xxs(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 8 groups of 32 weights: four grid bytes, then a u32 of four signs (7 bits each) and a scale (4)."""
    pairs = blocks[:, 2:].reshape(-1, 8, 8)
    points = grids.IQ2_XXS[pairs[:, :, :4]]
    signs, scales = _signs_and_scale(words(pairs[:, :, 4:].reshape(-1, 4), "<u4").reshape(-1, 8))
    scale = half(blocks, 0) * (_HALF + scales) * _QUARTER
    _signed(points.reshape(-1, 8, 32), scale, signs, out)


def iq2_xs(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 32 x u16 of a grid point (9 bits) and signs (7); 8 bytes with 16 scales of 4 bits."""
    stored = words(blocks[:, 2:66], "<u2")
    signs = grids.SIGNS[grids.EVEN_SIGNS[stored >> 9]]
    _signed(grids.IQ2_XS[stored & 511].reshape(-1, 16, 16), _sixteen_scales(blocks, 66), signs, out)


def iq2_s(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 32 low bytes of points; 32 bytes of signs; 8 of the points' upper pairs; 8 with 16 scales."""
    high = crumbs(blocks[:, 66:74]).swapaxes(-1, -2).reshape(-1, 32)
    points = grids.IQ2_S[blocks[:, 2:34] | high.astype(np.uint16) << 8]
    _signed(points.reshape(-1, 16, 16), _sixteen_scales(blocks, 74), grids.SIGNS[blocks[:, 34:66]], out)


def iq3_xxs(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 64 grid bytes, each of four weights; 8 x u32 of signs and a scale as in IQ2_XXS."""
    signs, scales = _signs_and_scale(words(blocks[:, 66:], "<u4"))
    scale = half(blocks, 0) * (_HALF + scales) * _HALF
    _signed(grids.IQ3_XXS[blocks[:, 2:66]].reshape(-1, 8, 32), scale, signs, out)


def iq3_s(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 64 low bytes of points; 8 of their upper bits; 32 bytes of signs; 4 bytes with 8 scales."""
    high = bit_planes(blocks[:, 66:74]).swapaxes(-1, -2).reshape(-1, 64)
    points = grids.IQ3_S[blocks[:, 2:66] | high.astype(np.uint16) << 8]
    scale = half(blocks, 0) * (1 + 2 * in_pairs(blocks[:, 106:]))
    _signed(points.reshape(-1, 8, 32), scale, grids.SIGNS[blocks[:, 74:106]], out)


def _sixteen_scales(blocks: Bytes, at: int) -> Floats:
    """Return the scales of IQ2_XS and IQ2_S, [n, 16], from the 8 bytes at `at`."""
    return half(blocks, 0) * (_HALF + in_pairs(blocks[:, at : at + 8])) * _QUARTER


def _signs_and_scale(stored: NDArray[np.uint32]) -> tuple[Floats, Floats]:
    """Take [n, groups] words apart: signs [n, groups, 4, 8] and the four-bit scale [n, groups]."""
    signs = grids.SIGNS[grids.EVEN_SIGNS[stored[:, :, None] >> _SEVEN_BITS & 127]]
    return signs, (stored >> 28).astype(np.float32)


def _signed(points: NDArray[np.int8], scale: Floats, signs: Floats, out: Floats) -> None:
    """Write scale x points x signs; points are [n, groups, values of a group], scale is [n, groups]."""
    np.multiply(points, scale[:, :, None], out=out.reshape(points.shape), dtype=np.float32)
    out *= signs.reshape(out.shape)


def iq1_s(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 32 low bytes of points; 8 x u16: the upper 3 bits of four points, a scale (3 bits), the offset's sign.

    A weight is scale x (-1, 0 or 1, plus or minus an eighth).
    """
    stored = words(blocks[:, 34:], "<u2")
    scale = half(blocks, 0) * (2 * (stored >> 12 & 7) + 1)
    offset = np.where(stored >> 15, -_EIGHTH, _EIGHTH)
    high = (stored[:, :, None] >> _TRIPLETS & 7).reshape(-1, 32)
    points = grids.IQ1[blocks[:, 2:34] | high << 8].reshape(-1, 8, 32)
    _offset(points, scale, offset, out)


def iq1_m(blocks: Bytes, out: Floats) -> None:
    """32 low bytes of points; 16 bytes of halves: a point's upper 3 bits and its offset's sign; 4 x u16 of scales.

    Each u16 has four scales of 3 bits, for 16 weights each, and on top a quarter of the f16 scale, the lowest first.
    """
    stored = words(blocks[:, 48:], "<u2")
    quarters = (stored & 0xF000) >> np.array([12, 8, 4, 0], np.uint16)
    whole = np.bitwise_or.reduce(quarters, axis=1, keepdims=True).view(np.float16).astype(np.float32)
    scale = whole * (2 * (stored[:, :, None] >> _TRIPLETS & 7).reshape(-1, 16) + 1)
    high = in_pairs(blocks[:, 32:48])
    offset = np.where(high & 8, -_EIGHTH, _EIGHTH)
    points = grids.IQ1[blocks[:, :32] | (high & 7).astype(np.uint16) << 8]
    _offset(points, scale.repeat(2, axis=1), offset, out)


def _offset(points: NDArray[np.int8], scale: Floats, offset: Floats, out: Floats) -> None:
    """Write scale x (points + offset); points are [n, groups, values of a group], the others [n, groups]."""
    into = out.reshape(points.shape)
    np.add(points, offset[:, :, None], out=into, dtype=np.float32)
    into *= scale[:, :, None]
