"""What kernels of several formats use: their signature, and half-precision scales."""

from typing import Any, Final

import numpy as np

from ember.numba_support import helper

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
def word_at(raw: Any, at: int) -> Any:
    """Return the little-endian u16 at byte `at` as uint32."""
    return np.uint32(np.uint32(raw[at]) | (np.uint32(raw[at + 1]) << np.uint32(8)))


@helper
def long_at(raw: Any, at: int) -> Any:
    """Return the little-endian u32 at byte `at` as uint32."""
    return np.uint32(word_at(raw, at) | (word_at(raw, at + 2) << np.uint32(16)))


@helper
def half_at(raw: Any, at: int) -> Any:
    """Return the little-endian float16 at byte `at` as float32."""
    return half_to_float(word_at(raw, at))
