"""K-quants: 256 values in groups of 16 or 32 whose small integer scales share one or two in half precision."""

import numpy as np

from ember.gguf.formats.bits import Bytes, Floats, bit_planes, crumbs, half, nibbles, with_upper


def q2_k(blocks: Bytes, out: Floats) -> None:
    """16 bytes of scales (low) and minima (high); 2 x 32 bytes of bit pairs; scale f16; scale of minima f16."""
    scale = half(blocks, 80) * (blocks[:, :16] & 15)
    minimum = half(blocks, 82) * (blocks[:, :16] >> 4)
    values = crumbs(blocks[:, 16:80].reshape(-1, 2, 32)).reshape(-1, 16, 16)
    _affine(values, scale, minimum, out.reshape(-1, 16, 16))


def q3_k(blocks: Bytes, out: Floats) -> None:
    """32 bytes of upper bits; 2 x 32 bytes of bit pairs; 12 bytes with 16 scales of 6 bits; scale f16. Values less 4.

    Scales, less 32: low halves of the first 8 bytes, then their high halves; upper pairs of bits in the last 4.
    """
    low = nibbles(blocks[:, 96:104]).reshape(-1, 16)
    high = crumbs(blocks[:, 104:108]).reshape(-1, 16)
    scale = half(blocks, 108) * (with_upper(low, high).view(np.int8) - np.int8(32))
    pairs = crumbs(blocks[:, 32:96].reshape(-1, 2, 32)).reshape(-1, 256)
    values = (pairs | bit_planes(blocks[:, :32]).reshape(-1, 256) << 2).view(np.int8) - np.int8(4)
    np.multiply(values.reshape(-1, 16, 16), scale[:, :, None], out=out.reshape(-1, 16, 16), dtype=np.float32)


def q4_k(blocks: Bytes, out: Floats) -> None:
    """Scale f16; scale of minima f16; 12 bytes with 8 scales and 8 minima of 6 bits; 4 x 32 bytes, halves apart."""
    values = nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    _affine(values, *_scales_and_minima(blocks), out.reshape(-1, 8, 32))


def q5_k(blocks: Bytes, out: Floats) -> None:
    """As Q4_K, with 32 bytes of upper bits before the halves: bit i of each belongs to group i."""
    low = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    _affine(with_upper(low, bit_planes(blocks[:, 16:48])), *_scales_and_minima(blocks), out.reshape(-1, 8, 32))


def _affine(values: Bytes, scale: Floats, minimum: Floats, out: Floats) -> None:
    """Write scale x values - minimum, [n, groups, values of a group]."""
    np.multiply(values, scale[:, :, None], out=out, dtype=np.float32)
    out -= minimum[:, :, None]


def _scales_and_minima(blocks: Bytes) -> tuple[Floats, Floats]:
    """Unpack those of Q4_K and Q5_K, [n, 8]: the first four lie whole, the upper bits of the others are spread."""
    low, middle, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 2) & 48)), axis=1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 2) & 48)), axis=1)
    return half(blocks, 0) * scales, half(blocks, 2) * minima


def q6_k(blocks: Bytes, out: Floats) -> None:
    """2 x 64 bytes of low halves; 2 x 32 bytes of upper bit pairs; 16 scales int8; scale f16. Values less 32."""
    low = nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 256)
    pairs = crumbs(blocks[:, 128:192].reshape(-1, 2, 32)).reshape(-1, 256)
    values = with_upper(low, pairs).view(np.int8) - np.int8(32)
    scale = half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    np.multiply(values.reshape(-1, 16, 16), scale[:, :, None], out=out.reshape(-1, 16, 16), dtype=np.float32)
