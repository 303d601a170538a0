"""Formats of 16 uneven levels. The levels are floats here: exact, and one conversion less a value."""

from typing import Any, Final

import numpy as np

from ember.gguf.grids import E4M3_HALVES, E8M0_HALVES, FP4_LEVELS, IQ4_LEVELS
from ember.gguf.kernels.halves import READS, half_at, word_at
from ember.numba_support import helper, kernel

_IQ4: Final = IQ4_LEVELS.astype(np.float32)
_FP4: Final = FP4_LEVELS.astype(np.float32)


@helper
def write_levels(packed: Any, levels: Any, scale: Any, into: Any) -> None:
    """Write the levels that the low halves of `packed` number, then those of the high halves, times scale."""
    count = packed.size
    for i in range(count):
        into[i] = scale * levels[packed[i] & 15]
        into[count + i] = scale * levels[packed[i] >> 4]


@kernel(READS)
def iq4_nl(raw: Any, out: Any) -> None:
    """Decode IQ4_NL."""
    for block in range(out.size // 32):
        packed = raw[18 * block + 2 : 18 * block + 18]
        write_levels(packed, _IQ4, half_at(raw, 18 * block), out[32 * block : 32 * block + 32])


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
            write_levels(packed, _IQ4, scale * np.float32(six), out[256 * block + 32 * group :][:32])


@kernel(READS)
def mxfp4(raw: Any, out: Any) -> None:
    """Decode MXFP4."""
    for block in range(out.size // 32):
        packed = raw[17 * block + 1 : 17 * block + 17]
        write_levels(packed, _FP4, E8M0_HALVES[raw[17 * block]], out[32 * block : 32 * block + 32])


@kernel(READS)
def nvfp4(raw: Any, out: Any) -> None:
    """Decode NVFP4."""
    for group in range(out.size // 16):
        start = 36 * (group // 4)
        packed = raw[start + 4 + 8 * (group % 4) :][:8]
        write_levels(packed, _FP4, E4M3_HALVES[raw[start + group % 4]], out[16 * group : 16 * group + 16])
