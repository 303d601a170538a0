"""Taking stored blocks apart: scales, and integers of fewer than eight bits."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_NIBBLE, _CRUMB, _BIT = np.uint8(15), np.uint8(3), np.uint8(1)
_NIBBLE_SHIFTS: Final = np.array([0, 4], np.uint8).reshape(2, 1)
_CRUMB_SHIFTS: Final = np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)
_BIT_SHIFTS: Final = np.arange(8, dtype=np.uint8).reshape(8, 1)


def half(blocks: Bytes, at: int) -> Floats:
    """Return the float16 at byte `at` of each block as float32 [blocks, 1]."""
    return words(blocks[:, at : at + 2], "<f2").astype(np.float32)


def words(stored: Bytes, dtype: str) -> NDArray[Any]:
    """Return bytes [n, k] as numbers of a wider type, [n, k / size]; copied, so that they are contiguous."""
    return np.ascontiguousarray(stored).view(dtype)


def nibbles(packed: Bytes) -> Bytes:
    """Unpack [..., n] bytes to [..., 2, n]: low halves, then high halves."""
    return packed[..., None, :] >> _NIBBLE_SHIFTS & _NIBBLE


def crumbs(packed: Bytes) -> Bytes:
    """Unpack [..., n] bytes to [..., 4, n] pairs of bits: the lowest pair of every byte, then the next."""
    return packed[..., None, :] >> _CRUMB_SHIFTS & _CRUMB


def bit_planes(packed: Bytes) -> Bytes:
    """Unpack [..., n] bytes to [..., 8, n] bits: the lowest bit of every byte, then the next."""
    return packed[..., None, :] >> _BIT_SHIFTS & _BIT


def bit_string(packed: Bytes) -> Bytes:
    """Unpack [n, k] bytes to [n, 8 k] bits in order, the lowest of each byte first."""
    return np.unpackbits(packed, axis=1, bitorder="little")


def in_pairs(packed: Bytes) -> Bytes:
    """Unpack [n, k] bytes to [n, 2 k] halves in order, the low one of each byte first."""
    return nibbles(packed).swapaxes(-1, -2).reshape(len(packed), -1)


def with_upper(low: Bytes, upper: Bytes) -> Bytes:
    """Put `upper` above the lower four bits."""
    return low | upper << np.uint8(4)
