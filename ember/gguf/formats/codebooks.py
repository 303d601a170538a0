"""Four bits that number one of 16 unevenly spaced levels."""

import numpy as np

from ember.gguf.formats.bits import Bytes, Floats, half, in_pairs, nibbles, with_upper, words
from ember.gguf.grids import E4M3_HALVES, E8M0_HALVES, FP4_LEVELS, IQ4_LEVELS


def iq4_nl(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 16 bytes whose low halves number values 0-15, high halves values 16-31."""
    np.multiply(IQ4_LEVELS[nibbles(blocks[:, 2:]).reshape(-1, 32)], half(blocks, 0), out=out, dtype=np.float32)


def iq4_xs(blocks: Bytes, out: Floats) -> None:
    """Scale f16; upper bit pairs of 8 scales (u16); their low halves (4 bytes); 8 x 16 bytes as in IQ4_NL.

    Scales are less 32.
    """
    high = words(blocks[:, 2:4], "<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = with_upper(in_pairs(blocks[:, 4:8]), high.astype(np.uint8)).view(np.int8) - np.int8(32)
    scale = half(blocks, 0) * scales
    levels = IQ4_LEVELS[nibbles(blocks[:, 8:].reshape(-1, 8, 16)).reshape(-1, 8, 32)]
    np.multiply(levels, scale[:, :, None], out=out.reshape(-1, 8, 32), dtype=np.float32)


def mxfp4(blocks: Bytes, out: Floats) -> None:
    """Exponent byte E8M0; 16 bytes of E2M1 as in IQ4_NL."""
    levels = FP4_LEVELS[nibbles(blocks[:, 1:]).reshape(-1, 32)]
    np.multiply(levels, E8M0_HALVES[blocks[:, :1]], out=out, dtype=np.float32)


def nvfp4(blocks: Bytes, out: Floats) -> None:
    """Four scales E4M3 without sign; 4 x 8 bytes of E2M1, low halves before high ones."""
    levels = FP4_LEVELS[nibbles(blocks[:, 4:].reshape(-1, 4, 8)).reshape(-1, 4, 16)]
    np.multiply(levels, E4M3_HALVES[blocks[:, :4]][:, :, None], out=out.reshape(-1, 4, 16), dtype=np.float32)
