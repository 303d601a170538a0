"""Weights -1, 0 and 1 times one scale a block of 256."""

from typing import Final

import numpy as np

from ember.gguf.formats.bits import Bytes, Floats, crumbs, half

_POWERS: Final = np.array([1, 3, 9, 27, 81], np.uint8).reshape(5, 1)


def tq1_0(blocks: Bytes, out: Floats) -> None:
    """32 and 16 bytes of five base-3 digits, 4 bytes of four; scale f16.

    A byte is a fraction of 256: the digit i is the whole part of 3 x (byte x 3^i mod 256) / 256. First the first
    digits of a run of bytes, then the second ones.
    """
    runs = [_digits(blocks[:, :32], 5), _digits(blocks[:, 32:48], 5), _digits(blocks[:, 48:52], 4)]
    values = (np.concatenate(runs, axis=1).astype(np.uint16) * 3 >> 8).astype(np.int8) - np.int8(1)
    np.multiply(values, half(blocks, 52), out=out, dtype=np.float32)


def _digits(packed: Bytes, count: int) -> Bytes:
    """Shift each of the `count` first digits to the front, dropping those before: [n, count x bytes]."""
    shifted: Bytes = packed[:, None, :] * _POWERS[:count]
    return shifted.reshape(len(packed), -1)


def tq2_0(blocks: Bytes, out: Floats) -> None:
    """2 x 32 bytes of bit pairs, each less 1 (3 is not used, but decodes to 2); scale f16."""
    values = crumbs(blocks[:, :64].reshape(-1, 2, 32)).reshape(-1, 256).view(np.int8) - np.int8(1)
    np.multiply(values, half(blocks, 64), out=out, dtype=np.float32)
