"""The first formats: 32 evenly spaced values with a scale, and perhaps a minimum, in half precision."""

import numpy as np

from ember.gguf.formats.bits import Bytes, Floats, bit_string, half, nibbles, with_upper


def q4_0(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 16 bytes whose low halves are values 0-15, high halves values 16-31, each less 8."""
    values = nibbles(blocks[:, 2:]).reshape(-1, 32).view(np.int8) - np.int8(8)
    np.multiply(values, half(blocks, 0), out=out, dtype=np.float32)


def q4_1(blocks: Bytes, out: Floats) -> None:
    """Scale f16; minimum f16; 16 bytes as in Q4_0, not centred."""
    np.multiply(nibbles(blocks[:, 4:]).reshape(-1, 32), half(blocks, 0), out=out, dtype=np.float32)
    out += half(blocks, 2)


def q5_0(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 32 upper bits in order; 16 bytes as in Q4_0; values less 16."""
    np.multiply(_fives(blocks[:, 2:]).view(np.int8) - np.int8(16), half(blocks, 0), out=out, dtype=np.float32)


def q5_1(blocks: Bytes, out: Floats) -> None:
    """Scale f16; minimum f16; 32 upper bits and 16 bytes as in Q5_0, not centred."""
    np.multiply(_fives(blocks[:, 4:]), half(blocks, 0), out=out, dtype=np.float32)
    out += half(blocks, 2)


def _fives(packed: Bytes) -> Bytes:
    """Put upper bits (4 bytes) and low halves (16 bytes) together: [n, 32], 0 to 31."""
    return with_upper(nibbles(packed[:, 4:]).reshape(-1, 32), bit_string(packed[:, :4]))


def q8_0(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 32 x int8."""
    np.multiply(blocks[:, 2:].view(np.int8), half(blocks, 0), out=out, dtype=np.float32)
