"""The decoders as compiled kernels, operation for operation those of `decode`, so bit for bit.

Each takes `raw` uint8 [bytes] and `out` float32 [values], both flat. Small integers become floats by way of int32,
which is exact; half-precision scales by `half_to_float`, which is exact for all 65,536 of them.
"""

from typing import Any, Final

import numpy as np

from ember.numba_support import helper, kernel

READS: Final = "void(Array(uint8, 1, 'C', readonly=True), float32[::1])"
"""Mapped tensors are read-only; numba takes writable arrays for them as well."""


@helper
def half_to_float(half: Any) -> Any:
    """Return the float32 of a float16's 16 bits (an integer), NaN payloads and subnormals included.

    The exponent is rebiased by integer arithmetic; a subnormal's by one exact float subtraction.
    """
    shifted = np.uint32((half & 0x7FFF) << 13)
    exponent = np.uint32(shifted & np.uint32(0x0F800000))
    normal = np.uint32(shifted + np.uint32(0x38000000))
    special = np.uint32(normal + np.uint32(0x38000000))
    lifted = np.uint32(normal + np.uint32(0x00800000)).view(np.float32)
    subnormal = np.float32(lifted - np.uint32(0x38800000).view(np.float32))
    bits = special if exponent == np.uint32(0x0F800000) else normal
    bits = subnormal.view(np.uint32) if exponent == np.uint32(0) else bits
    return np.uint32(bits | np.uint32((half & 0x8000) << 16)).view(np.float32)


@helper
def half_at(raw: Any, at: int) -> Any:
    """Return the little-endian float16 at byte `at` as float32."""
    return half_to_float(np.uint32(np.uint32(raw[at]) | (np.uint32(raw[at + 1]) << np.uint32(8))))


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
