"""Formats of 16 uneven levels, computed: looked up in a table they become gathers, which are several times slower."""

from typing import Any, Final

import numpy as np

from ember.gguf.grids import E4M3_HALVES, E8M0_HALVES, IQ4_LEVELS
from ember.gguf.kernels.halves import READS, half_at, word_at
from ember.numba_support import helper, kernel

_FOURS: Final = IQ4_LEVELS.view(np.int32)
_FOUR_0, _FOUR_1, _FOUR_2, _FOUR_3 = (np.int32(four) for four in _FOURS)
"""The levels of IQ4, four to a number."""


@helper
def iq4_level(index: Any) -> Any:
    """Return the level with this int32 index, as float32."""
    low = _FOUR_0 if index < 4 else _FOUR_1
    high = _FOUR_2 if index < 12 else _FOUR_3
    four = low if index < 8 else high
    moved = np.int32(four << np.int32(24 - np.int32((index & 3) << 3)))
    return np.float32(np.int32(moved >> np.int32(24)))


@helper
def fp4_level(bits: Any) -> Any:
    """Return twice the E2M1 float with these bits (an int32), as float32; no negative zero."""
    exponent, mantissa = np.int32(bits >> 1 & 3), np.int32(bits & 1)
    normal = np.int32((mantissa | 2) << exponent) >> 1
    size = np.int32(mantissa if exponent == 0 else normal)
    return np.float32(np.int32(-size if bits & 8 else size))


@helper
def write_iq4(packed: Any, scale: Any, into: Any) -> None:
    """Write scale x the 16 levels of low halves, then of high halves."""
    for i in range(16):
        into[i] = scale * iq4_level(np.int32(packed[i] & 15))
        into[16 + i] = scale * iq4_level(np.int32(packed[i] >> 4))


@kernel(READS)
def iq4_nl(raw: Any, out: Any) -> None:
    """Decode IQ4_NL."""
    for block in range(out.size // 32):
        packed = raw[18 * block + 2 : 18 * block + 18]
        write_iq4(packed, half_at(raw, 18 * block), out[32 * block : 32 * block + 32])


@kernel(READS)
def iq4_xs(raw: Any, out: Any) -> None:
    """Decode IQ4_XS."""
    for block in range(out.size // 256):
        start = 136 * block
        scale, high = half_at(raw, start), np.int32(word_at(raw, start + 2))
        for group in range(8):
            low = np.int32(raw[start + 4 + group // 2]) >> group % 2 * 4 & 15
            six = np.int32(low | (high >> 2 * group & 3) << 4) - np.int32(32)
            packed = raw[start + 8 + 16 * group :][:16]
            write_iq4(packed, scale * np.float32(np.int32(six)), out[256 * block + 32 * group :][:32])


@kernel(READS)
def mxfp4(raw: Any, out: Any) -> None:
    """Decode MXFP4."""
    for block in range(out.size // 32):
        scale = E8M0_HALVES[raw[17 * block]]
        packed = raw[17 * block + 1 : 17 * block + 17]
        into = out[32 * block : 32 * block + 32]
        for i in range(16):
            into[i] = scale * fp4_level(np.int32(packed[i] & 15))
            into[16 + i] = scale * fp4_level(np.int32(packed[i] >> 4))


@kernel(READS)
def nvfp4(raw: Any, out: Any) -> None:
    """Decode NVFP4."""
    for group in range(out.size // 16):
        start = 36 * (group // 4)
        scale = E4M3_HALVES[raw[start + group % 4]]
        packed = raw[start + 4 + 8 * (group % 4) :][:8]
        into = out[16 * group : 16 * group + 16]
        for i in range(8):
            into[i] = scale * fp4_level(np.int32(packed[i] & 15))
            into[8 + i] = scale * fp4_level(np.int32(packed[i] >> 4))
