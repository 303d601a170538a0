"""The tables that IQ types and four-bit floats index, as arrays: read-only, made when this module is imported.

Kernels have them compiled in as constants; the name numba_support stands here so that the kernels' cache is keyed by
this file too. `grid_data` holds nothing that could change without a new ggml.
"""

import base64
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.gguf.grid_data import LEVELS, POINTS, SHAPES

Levels = NDArray[np.int8]


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    values.flags.writeable = False
    return values


def _grid(name: str) -> Levels:
    """Unpack a grid: int8 [points, 8 or 4]."""
    points, width = SHAPES[name]
    bits = (len(LEVELS[name]) - 1).bit_length()
    stored = np.unpackbits(np.frombuffer(base64.b85decode(POINTS[name]), np.uint8), bitorder="little")
    index = np.packbits(stored[: points * width * bits].reshape(-1, bits), axis=1, bitorder="little")
    return _frozen(np.array(LEVELS[name], np.int8)[index].reshape(points, width))


IQ2_XXS: Final = _grid("IQ2_XXS")
IQ2_XS: Final = _grid("IQ2_XS")
IQ2_S: Final = _grid("IQ2_S")
IQ3_XXS: Final = _grid("IQ3_XXS")
IQ3_S: Final = _grid("IQ3_S")
IQ1: Final = _grid("IQ1_S")
"""Of IQ1_S and IQ1_M: levels -1, 0, 1."""

_BYTES: Final = np.arange(256, dtype=np.uint8)
_BITS: Final = np.unpackbits(_BYTES[:, None], axis=1, bitorder="little")
SIGNS: Final[NDArray[np.float32]] = _frozen(1 - 2 * _BITS.astype(np.float32))
"""[256, 8]: bit i of the index set, value i is -1; else 1."""
_ODD: Final = _BITS[:128].sum(axis=1, dtype=np.uint8) & 1
EVEN_SIGNS: Final[NDArray[np.uint8]] = _frozen(_BYTES[:128] | _ODD << 7)
"""[128]: seven stored signs, and the eighth that makes the number of minuses even; an index into SIGNS."""

IQ4_LEVELS: Final[Levels] = _frozen(
    np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
)
"""Of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl)."""
FP4_LEVELS: Final[Levels] = _frozen(np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8))
"""Of MXFP4 and NVFP4: twice the values of E2M1 (OCP Microscaling Formats 1.0), with no negative zero."""


def _e8m0_halves() -> NDArray[np.float32]:
    """Half of 2^(e - 127) for every exponent byte: the smallest two are subnormal, 255 is 2^127, not NaN."""
    exponents = np.arange(256, dtype=np.uint32)
    return _frozen(
        np.where(exponents < 2, 0x00200000 << exponents, (exponents - 1) << 23).astype("u4").view(np.float32)
    )


def _e4m3_halves() -> NDArray[np.float32]:
    """Half of the unsigned E4M3 (bias 7) of every byte: the top bit is ignored, 0x7F counts as 0 and 0xFF does not."""
    exponents, mantissas = _BYTES >> 3 & 15, (_BYTES & 7).astype(np.float32)
    normal = np.ldexp(1 + mantissas / 8, exponents.astype(np.int32) - 7)
    values = np.where(exponents == 0, mantissas * np.float32(2**-9), normal) * np.float32(0.5)
    values[0x7F] = 0
    return _frozen(values.astype(np.float32))


E8M0_HALVES: Final = _e8m0_halves()
"""[256]: scales of MXFP4, halved because FP4_LEVELS are doubled (ggml-impl.h, ggml_e8m0_to_fp32_half)."""
E4M3_HALVES: Final = _e4m3_halves()
"""[256]: scales of NVFP4, halved likewise (ggml-impl.h, ggml_ue4m3_to_fp32)."""
