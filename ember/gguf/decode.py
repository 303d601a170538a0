"""Stored values to float32, in NumPy: the one checked way to the functions of `ember.gguf.formats`.

The bits are those of gguf-py's `gguf.quants.dequantize`: the same operations in the same order, each rounded to
float32 by itself (no fused multiply-add). A scale that is infinite or not a number decodes like any other; whoever
computes with the values finds and names it.
"""

from typing import Final

import numpy as np

from ember.errors import InputError, UnsupportedError
from ember.gguf.formats import DECODERS
from ember.gguf.formats.bits import Bytes, Floats
from ember.gguf.types import QuantType, supported_types

CHUNK_VALUES: Final = 1 << 17
"""Values decoded at a time: the intermediate arrays stay in the cache and small."""


def decode(raw: Bytes, type: QuantType, out: Floats) -> None:
    """Decode `raw` [bytes], any whole number of blocks, into `out`, float32 and C-contiguous, of as many values.

    Raises UnsupportedError for a type without decoder, InputError where sizes do not fit.
    """
    flat = check_buffers(raw, type, out)
    blocks = raw.reshape(-1, type.type_size)
    decoder = DECODERS[type.name]
    values = flat.reshape(-1, type.block_size)
    step = CHUNK_VALUES // type.block_size
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(blocks), step):
            decoder(blocks[start : start + step], values[start : start + step])


def check_buffers(raw: Bytes, type: QuantType, out: Floats) -> Floats:
    """Check that `raw` and `out` fit each other and the type; return `out` flat."""
    if not type.supported:
        raise UnsupportedError(f"{type} (type id {type.id}) is not decoded; supported types: {supported_types()}")
    if raw.dtype != np.uint8 or raw.ndim != 1 or not raw.flags.c_contiguous:
        raise InputError(f"stored values are {raw.dtype} {list(raw.shape)}; contiguous uint8 [bytes] is expected")
    if out.dtype != np.float32 or not out.flags.c_contiguous or not out.flags.writeable:
        raise InputError(f"the buffer is {out.dtype} {list(out.shape)}; writable C-contiguous float32 is expected")
    blocks, rest = divmod(raw.size, type.type_size)
    if rest or out.size != blocks * type.block_size:
        raise InputError(
            f"{raw.size} bytes of {type} and a buffer of {out.size} values; blocks of {type.type_size} bytes and "
            f"{type.block_size} values are expected"
        )
    return out.reshape(-1)
