"""The types a GGUF names by number: of tensors (ggml's quantisations) and of metadata values.

Numbers and block sizes are those of ggml (`ggml.h`, `ggml-common.h`); a number that ggml withdrew keeps its old name,
so that a message can say what the file holds.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

DECODED: Final = frozenset({
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS",
    "TQ1_0", "TQ2_0", "MXFP4", "NVFP4",
})  # fmt: skip
"""Names of the types that `ember.gguf.decode` turns into float32: all that gguf-py does, and no others."""


@dataclass(frozen=True, slots=True)
class QuantType:
    """How the values of a tensor are stored: blocks of `block_size` values in `type_size` bytes, along the rows."""

    id: int
    name: str
    block_size: int
    """Values in a block; 0 where the type is unknown or withdrawn."""
    type_size: int
    """Bytes of a block; 0 where the type is unknown or withdrawn."""

    @property
    def supported(self) -> bool:
        """Whether Ember can decode it."""
        return self.name in DECODED

    @property
    def known_size(self) -> bool:
        """Whether the bytes of a tensor of this type can be computed."""
        return self.block_size > 0

    def __str__(self) -> str:
        return self.name


_SIZES: Final = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 40),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
)
_WITHDRAWN: Final = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
QUANT_TYPES: Final = {number: QuantType(number, name, block, size) for number, name, block, size in _SIZES} | {
    number: QuantType(number, f"{name} (withdrawn from ggml)", 0, 0) for number, name in _WITHDRAWN.items()
}
"""Every type number that ggml gives or gave a name."""

TYPES_BY_NAME: Final = {kind.name: kind for kind in QUANT_TYPES.values()}

VIEW_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "F64": np.dtype("<f8"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
"""Types that NumPy can look at without decoding."""


def quant_type(number: int) -> QuantType:
    """Return the type with this number; an unknown one has sizes of 0."""
    return QUANT_TYPES.get(number) or QuantType(number, f"unknown type {number}", 0, 0)


def supported_types() -> str:
    """Return the names of the types that can be decoded, for messages."""
    return ", ".join(kind.name for kind in QUANT_TYPES.values() if kind.supported)


STRING: Final = 8
ARRAY: Final = 9
BOOL: Final = 7
UINT32: Final = 4
VALUE_NAMES: Final = (
    "UINT8",
    "INT8",
    "UINT16",
    "INT16",
    "UINT32",
    "INT32",
    "FLOAT32",
    "BOOL",
    "STRING",
    "ARRAY",
    "UINT64",
    "INT64",
    "FLOAT64",
)
VALUE_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
"""Metadata value types of fixed width, by number."""
