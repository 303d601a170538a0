"""Ternary formats."""

from typing import Any

import numpy as np

from ember.gguf.kernels.halves import READS, half_at
from ember.numba_support import helper, kernel


@helper
def write_digits(packed: Any, count: int, scale: Any, into: Any) -> None:
    """Write the `count` base-3 digits of each byte, less 1, times scale: all first ones, then all second ones."""
    width = packed.size
    power = np.int32(1)
    for digit in range(count):
        for i in range(width):
            shifted = np.int32(np.int32(packed[i]) * power) & np.int32(255)
            into[digit * width + i] = scale * np.float32(np.int32(shifted * np.int32(3) >> np.int32(8)) - np.int32(1))
        power = np.int32(power * np.int32(3))


@kernel(READS)
def tq1_0(raw: Any, out: Any) -> None:
    """Decode TQ1_0."""
    for block in range(out.size // 256):
        start = 54 * block
        scale = half_at(raw, start + 52)
        into = out[256 * block : 256 * block + 256]
        write_digits(raw[start : start + 32], 5, scale, into[:160])
        write_digits(raw[start + 32 : start + 48], 5, scale, into[160:240])
        write_digits(raw[start + 48 : start + 52], 4, scale, into[240:])


@kernel(READS)
def tq2_0(raw: Any, out: Any) -> None:
    """Decode TQ2_0."""
    for block in range(out.size // 256):
        scale = half_at(raw, 66 * block + 64)
        for half in range(2):
            pairs = raw[66 * block + 32 * half :][:32]
            into = out[256 * block + 128 * half :][:128]
            for i in range(32):
                four = np.int32(pairs[i])
                into[i] = scale * np.float32(np.int32(four & 3) - np.int32(1))
                into[32 + i] = scale * np.float32(np.int32(four >> 2 & 3) - np.int32(1))
                into[64 + i] = scale * np.float32(np.int32(four >> 4 & 3) - np.int32(1))
                into[96 + i] = scale * np.float32(np.int32(four >> 6) - np.int32(1))
