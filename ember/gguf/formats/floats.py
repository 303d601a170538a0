"""Floats of one value a block."""

import numpy as np

from ember.gguf.formats.bits import Bytes, Floats


def f32(blocks: Bytes, out: Floats) -> None:
    """Copy the stored floats, whatever their bits."""
    out[:] = blocks.view("<f4")


def f16(blocks: Bytes, out: Floats) -> None:
    """Widen halves; exact."""
    out[:] = blocks.view("<f2")


def bf16(blocks: Bytes, out: Floats) -> None:
    """Put the stored halves back to where they stood, the upper half of a float32."""
    np.left_shift(blocks.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)
