"""F16 and the formats of 32 evenly spaced values."""

from typing import Any

import numpy as np

from ember.gguf.kernels.halves import READS, half_at, long_at
from ember.numba_support import kernel


@kernel(READS)
def f16(raw: Any, out: Any) -> None:
    """Decode F16."""
    for i in range(out.size):
        out[i] = half_at(raw, 2 * i)


@kernel(READS)
def q8_0(raw: Any, out: Any) -> None:
    """Decode Q8_0."""
    for block in range(out.size // 32):
        scale = half_at(raw, 34 * block)
        values = raw[34 * block + 2 : 34 * block + 34]
        into = out[32 * block : 32 * block + 32]
        for i in range(32):
            into[i] = np.float32(np.int8(values[i])) * scale


@kernel(READS)
def q4_0(raw: Any, out: Any) -> None:
    """Decode Q4_0."""
    for block in range(out.size // 32):
        scale = half_at(raw, 18 * block)
        packed = raw[18 * block + 2 : 18 * block + 18]
        into = out[32 * block : 32 * block + 32]
        for i in range(16):
            into[i] = np.float32(np.int32(packed[i] & 15) - np.int32(8)) * scale
            into[16 + i] = np.float32(np.int32(packed[i] >> 4) - np.int32(8)) * scale


@kernel(READS)
def q4_1(raw: Any, out: Any) -> None:
    """Decode Q4_1."""
    for block in range(out.size // 32):
        scale = half_at(raw, 20 * block)
        minimum = half_at(raw, 20 * block + 2)
        packed = raw[20 * block + 4 : 20 * block + 20]
        into = out[32 * block : 32 * block + 32]
        for i in range(16):
            into[i] = np.float32(np.int32(packed[i] & 15)) * scale + minimum
            into[16 + i] = np.float32(np.int32(packed[i] >> 4)) * scale + minimum


@kernel(READS)
def q5_0(raw: Any, out: Any) -> None:
    """Decode Q5_0."""
    for block in range(out.size // 32):
        scale, upper = half_at(raw, 22 * block), long_at(raw, 22 * block + 2)
        packed = raw[22 * block + 6 : 22 * block + 22]
        into = out[32 * block : 32 * block + 32]
        for i in range(16):
            low, high = np.int32(packed[i] & 15), np.int32(packed[i] >> 4)
            bit_low, bit_high = np.int32(upper >> np.uint32(i) & 1), np.int32(upper >> np.uint32(i + 16) & 1)
            into[i] = np.float32(np.int32(low | bit_low << 4) - np.int32(16)) * scale
            into[16 + i] = np.float32(np.int32(high | bit_high << 4) - np.int32(16)) * scale


@kernel(READS)
def q5_1(raw: Any, out: Any) -> None:
    """Decode Q5_1."""
    for block in range(out.size // 32):
        scale, minimum, upper = half_at(raw, 24 * block), half_at(raw, 24 * block + 2), long_at(raw, 24 * block + 4)
        packed = raw[24 * block + 8 : 24 * block + 24]
        into = out[32 * block : 32 * block + 32]
        for i in range(16):
            low, high = np.int32(packed[i] & 15), np.int32(packed[i] >> 4)
            bit_low, bit_high = np.int32(upper >> np.uint32(i) & 1), np.int32(upper >> np.uint32(i + 16) & 1)
            into[i] = np.float32(np.int32(low | bit_low << 4)) * scale + minimum
            into[16 + i] = np.float32(np.int32(high | bit_high << 4)) * scale + minimum
