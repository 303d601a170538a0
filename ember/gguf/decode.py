"""Stored values to float32, in NumPy: one small function for each format, each saying its bytes.

The bits are those of gguf-py's `gguf.quants.dequantize`: the same operations in the same order, each rounded to
float32 by itself (no fused multiply-add). A scale that is infinite or not a number decodes like any other; whoever
computes with the values finds and names it.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError, UnsupportedError
from ember.gguf.types import QuantType, supported_types

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
_CHUNK_BLOCKS: Final = 4096
"""Blocks decoded at a time: the intermediate arrays stay in the cache and small."""


def decode(raw: Bytes, type: QuantType, out: Floats) -> None:
    """Decode `raw` [bytes], any whole number of blocks, into `out`, float32 and C-contiguous, of as many values.

    Raises UnsupportedError for a type without decoder, InputError where sizes do not fit.
    """
    flat = check_buffers(raw, type, out)
    blocks = raw.reshape(-1, type.type_size)
    decoder = DECODERS[type.name]
    values = flat.reshape(-1, type.block_size)
    step = _CHUNK_BLOCKS * max(1, 32 // type.block_size)
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


def _half(blocks: Bytes, at: int) -> Floats:
    """Return the float16 at byte `at` of each block as float32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> NDArray[np.uint8]:
    """Unpack [..., n] bytes to [..., 2, n]: low halves, then high halves."""
    return np.stack((packed & 15, packed >> 4), axis=-2)


def _f32(blocks: Bytes, out: Floats) -> None:
    out[:] = blocks.view("<f4")


def _f16(blocks: Bytes, out: Floats) -> None:
    out[:] = blocks.view("<f2")


def _bf16(blocks: Bytes, out: Floats) -> None:
    """Put the stored halves back to where they stood, the upper half of a float32."""
    np.left_shift(blocks.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def _q8_0(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 32 x int8."""
    np.multiply(blocks[:, 2:].view(np.int8), _half(blocks, 0), out=out, dtype=np.float32)


def _q4_0(blocks: Bytes, out: Floats) -> None:
    """Scale f16; 16 bytes whose low halves are values 0-15, high halves values 16-31, each less 8."""
    values = _nibbles(blocks[:, 2:]).reshape(len(blocks), 32).astype(np.int8) - np.int8(8)
    np.multiply(values, _half(blocks, 0), out=out, dtype=np.float32)


def _q4_1(blocks: Bytes, out: Floats) -> None:
    """Scale f16; minimum f16; 16 bytes as in Q4_0, not centred."""
    values = _nibbles(blocks[:, 4:]).reshape(len(blocks), 32)
    np.multiply(values, _half(blocks, 0), out=out, dtype=np.float32)
    out += _half(blocks, 2)


def _q4_k(blocks: Bytes, out: Floats) -> None:
    """Scale f16; scale of minima f16; 12 bytes with 8 scales and 8 minima of 6 bits; 4 x 32 bytes, halves apart."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    scale = (_half(blocks, 0) * scales)[:, :, None]
    minimum = (_half(blocks, 2) * minima)[:, :, None]
    values = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    groups = out.reshape(-1, 8, 32)
    np.multiply(values, scale, out=groups, dtype=np.float32)
    groups -= minimum


def _scales_and_minima(packed: Bytes) -> tuple[Floats, Floats]:
    """Unpack the 6-bit numbers of K-quants: the first four lie whole, the upper bits of the others are spread."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 2) & 48)), axis=1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 2) & 48)), axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _q6_k(blocks: Bytes, out: Floats) -> None:
    """2 x 64 bytes of low halves; 2 x 32 bytes of upper bit pairs; 16 scales int8; scale f16. Values less 32."""
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    pairs = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> _PAIR_SHIFTS
    values = (low | ((pairs & 3) << 4)).astype(np.int8) - np.int8(32)
    scale = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    np.multiply(values.reshape(-1, 16, 16), scale[:, :, None], out=out.reshape(-1, 16, 16), dtype=np.float32)


_PAIR_SHIFTS: Final = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
Decoder = Callable[[Any, Any], None]
DECODERS: Final[dict[str, Decoder]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
}
"""By type name: (blocks uint8 [n, type_size], out float32 [n, block_size])."""
