"""Blocks decoded by gguf-py and by Ember, and compared bit by bit."""

from collections.abc import Callable
from typing import Any, Final

import gguf
import numpy as np
from numpy.typing import NDArray

from ember.gguf import decode, decode_fast
from ember.gguf.types import QUANT_TYPES, QuantType

Decode = Callable[[Any, QuantType, Any], None]
ROUTES: Final[dict[str, Decode]] = {"numpy": decode.decode, "fast": decode_fast.decode}
decode_fast.prepare(QUANT_TYPES.values())  # now: tests of the reader keep their cache to themselves


def by_gguf_py(raw: NDArray[np.uint8], kind: QuantType) -> NDArray[np.float32]:
    """Decode [bytes] to [values]; gguf-py takes F32 and F16 in their own types."""
    stored = raw.view({"F32": np.float32, "F16": np.float16}.get(kind.name, np.uint8))
    with np.errstate(all="ignore"):
        decoded = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType(kind.id))
    return np.asarray(decoded, np.float32).reshape(-1)


def by_ember(raw: NDArray[np.uint8], kind: QuantType, route: Decode) -> NDArray[np.float32]:
    """Decode [bytes] to [values] over a buffer of other values."""
    out = np.full(raw.size // kind.type_size * kind.block_size, -7777, np.float32)
    route(raw, kind, out)
    return out


def assert_same_bits(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    """Equal bits, signs of zero included. Which of two NaNs comes out of a sum is the processor's choice."""
    nan = np.isnan(theirs)
    assert np.array_equal(np.isnan(ours), nan)
    differ = (ours.view(np.uint32) != theirs.view(np.uint32)) & ~nan
    assert not differ.any(), f"{differ.sum()} values differ, first at {np.flatnonzero(differ)[:3]}"


def random_blocks(kind: QuantType, blocks: int, seed: int) -> NDArray[np.uint8]:
    """Draw bytes [blocks x bytes of a block]: scales of every kind come up, infinities and NaN too."""
    return np.random.default_rng(seed).integers(0, 256, blocks * kind.type_size, dtype=np.uint8)
