"""K-quants."""

from typing import Any

import numpy as np

from ember.gguf.kernels.halves import READS, half_at
from ember.numba_support import helper, kernel


@helper
def low_of(byte: Any) -> Any:
    """Return the low half of a byte as float32."""
    return np.float32(np.int32(byte & 15))


@helper
def high_of(byte: Any) -> Any:
    """Return the high half of a byte as float32."""
    return np.float32(np.int32(byte >> 4))


@helper
def q3_scale(packed: Any, group: int) -> Any:
    """Return the 6-bit scale of a group (0-15) of a Q3_K block, less 32, from its 12 packed bytes."""
    low = np.int32(packed[group % 8]) >> group // 8 * 4 & 15
    return np.float32(np.int32(low | (np.int32(packed[8 + group % 4]) >> group // 4 * 2 & 3) << 4) - np.int32(32))


@helper
def k_scale(packed: Any, group: int) -> Any:
    """Return the 6-bit scale of a group (0-7) of a K-quant from its 12 packed bytes."""
    if group < 4:
        return np.float32(np.int32(packed[group] & 63))
    return np.float32(np.int32((packed[group + 4] & 15) | ((packed[group - 4] >> 2) & 48)))


@helper
def k_minimum(packed: Any, group: int) -> Any:
    """Return the 6-bit minimum of a group (0-7) of a K-quant from its 12 packed bytes."""
    if group < 4:
        return np.float32(np.int32(packed[group + 4] & 63))
    return np.float32(np.int32((packed[group + 4] >> 4) | ((packed[group] >> 2) & 48)))


@kernel(READS)
def q2_k(raw: Any, out: Any) -> None:
    """Decode Q2_K: a byte of pairs serves four values 32 apart, which are decoded together."""
    for block in range(out.size // 256):
        start = 84 * block
        scale, minimum = half_at(raw, start + 80), half_at(raw, start + 82)
        for quarter in range(4):
            half, column = quarter // 2, quarter % 2 * 16
            pairs = raw[start + 16 + 32 * half + column :][:16]
            scales = raw[start + 8 * half + quarter % 2 :][:7]
            into = out[256 * block + 128 * half + column :][:112]
            scale_0, minimum_0 = scale * low_of(scales[0]), minimum * high_of(scales[0])
            scale_1, minimum_1 = scale * low_of(scales[2]), minimum * high_of(scales[2])
            scale_2, minimum_2 = scale * low_of(scales[4]), minimum * high_of(scales[4])
            scale_3, minimum_3 = scale * low_of(scales[6]), minimum * high_of(scales[6])
            for i in range(16):
                four = np.int32(pairs[i])
                into[i] = scale_0 * np.float32(np.int32(four & 3)) - minimum_0
                into[32 + i] = scale_1 * np.float32(np.int32(four >> 2 & 3)) - minimum_1
                into[64 + i] = scale_2 * np.float32(np.int32(four >> 4 & 3)) - minimum_2
                into[96 + i] = scale_3 * np.float32(np.int32(four >> 6)) - minimum_3


@kernel(READS)
def q3_k(raw: Any, out: Any) -> None:
    """Decode Q3_K: like Q2_K four values 32 apart together, with their bits of a byte of the mask."""
    for block in range(out.size // 256):
        start = 110 * block
        scale = half_at(raw, start + 108)
        packed = raw[start + 96 :][:12]
        for quarter in range(4):
            half, column = quarter // 2, quarter % 2 * 16
            mask = raw[start + column :][:16]
            pairs = raw[start + 32 + 32 * half + column :][:16]
            into = out[256 * block + 128 * half + column :][:112]
            group, shift = 8 * half + quarter % 2, np.int32(4 * half)
            scale_0, scale_1 = scale * q3_scale(packed, group), scale * q3_scale(packed, group + 2)
            scale_2, scale_3 = scale * q3_scale(packed, group + 4), scale * q3_scale(packed, group + 6)
            for i in range(16):
                four, bits = np.int32(pairs[i]), np.int32(np.int32(mask[i]) >> shift)
                into[i] = scale_0 * np.float32(np.int32((four & 3) | (bits & 1) << 2) - np.int32(4))
                into[32 + i] = scale_1 * np.float32(np.int32((four >> 2 & 3) | (bits & 2) << 1) - np.int32(4))
                into[64 + i] = scale_2 * np.float32(np.int32((four >> 4 & 3) | (bits & 4)) - np.int32(4))
                into[96 + i] = scale_3 * np.float32(np.int32((four >> 6) | (bits & 8) >> 1) - np.int32(4))


@kernel(READS)
def q4_k(raw: Any, out: Any) -> None:
    """Decode Q4_K."""
    for block in range(out.size // 256):
        start = 144 * block
        scale, minimum = half_at(raw, start), half_at(raw, start + 2)
        packed = raw[start + 4 : start + 16]
        for pair in range(4):
            scale_a, minimum_a = scale * k_scale(packed, 2 * pair), minimum * k_minimum(packed, 2 * pair)
            scale_b, minimum_b = scale * k_scale(packed, 2 * pair + 1), minimum * k_minimum(packed, 2 * pair + 1)
            values = raw[start + 16 + 32 * pair : start + 48 + 32 * pair]
            into = out[256 * block + 64 * pair : 256 * block + 64 * pair + 64]
            for i in range(32):
                into[i] = scale_a * np.float32(np.int32(values[i] & 15)) - minimum_a
                into[32 + i] = scale_b * np.float32(np.int32(values[i] >> 4)) - minimum_b


@kernel(READS)
def q5_k(raw: Any, out: Any) -> None:
    """Decode Q5_K: bit i of each of the 32 upper bytes belongs to group i."""
    for block in range(out.size // 256):
        start = 176 * block
        scale, minimum = half_at(raw, start), half_at(raw, start + 2)
        packed = raw[start + 4 : start + 16]
        upper = raw[start + 16 : start + 48]
        for pair in range(4):
            scale_a, minimum_a = scale * k_scale(packed, 2 * pair), minimum * k_minimum(packed, 2 * pair)
            scale_b, minimum_b = scale * k_scale(packed, 2 * pair + 1), minimum * k_minimum(packed, 2 * pair + 1)
            values = raw[start + 48 + 32 * pair : start + 80 + 32 * pair]
            into = out[256 * block + 64 * pair : 256 * block + 64 * pair + 64]
            shift = np.int32(2 * pair)
            for i in range(32):
                value, bits = np.int32(values[i]), np.int32(np.int32(upper[i]) >> shift)
                into[i] = scale_a * np.float32(np.int32((value & 15) | (bits & 1) << 4)) - minimum_a
                into[32 + i] = scale_b * np.float32(np.int32((value >> 4) | (bits & 2) << 3)) - minimum_b


@kernel(READS)
def q6_k(raw: Any, out: Any) -> None:
    """Decode Q6_K: a byte of upper pairs serves four values 32 apart, which are decoded together (5x faster)."""
    for block in range(out.size // 256):
        start = 210 * block
        scale = half_at(raw, start + 208)
        for quarter in range(4):
            half, column = quarter // 2, quarter % 2 * 16
            low_a = raw[start + 64 * half + column :][:16]
            low_b = raw[start + 64 * half + 32 + column :][:16]
            pairs = raw[start + 128 + 32 * half + column :][:16]
            scales = raw[start + 192 + 8 * half + quarter % 2 :][:7]
            into = out[256 * block + 128 * half + column :][:112]
            scale_0 = scale * np.float32(np.int8(scales[0]))
            scale_1 = scale * np.float32(np.int8(scales[2]))
            scale_2 = scale * np.float32(np.int8(scales[4]))
            scale_3 = scale * np.float32(np.int8(scales[6]))
            for i in range(16):
                a, b, upper = np.int32(low_a[i]), np.int32(low_b[i]), np.int32(pairs[i])
                into[i] = scale_0 * np.float32(np.int32((a & 15) | (upper & 3) << 4) - np.int32(32))
                into[32 + i] = scale_1 * np.float32(np.int32((b & 15) | (upper >> 2 & 3) << 4) - np.int32(32))
                into[64 + i] = scale_2 * np.float32(np.int32((a >> 4) | (upper >> 4 & 3) << 4) - np.int32(32))
                into[96 + i] = scale_3 * np.float32(np.int32((b >> 4) | (upper >> 6 & 3) << 4) - np.int32(32))
