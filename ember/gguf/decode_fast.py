"""Stored values to float32 by compiled kernels where there are any, else by NumPy: the same bits either way."""

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.gguf import decode as plain
from ember.gguf.types import QuantType
from ember.numba_support import HAVE_NUMBA

_MODULES: Final = {
    "rounds": ("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    "k_quants": ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    "codebooks": ("IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"),
    "ternary": ("TQ1_0", "TQ2_0"),
    "grids": ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"),
}
KERNELS: Final[dict[str, str]] = (
    {name: module for module, names in _MODULES.items() for name in names} if HAVE_NUMBA else {}
)
"""By type name: the module of `ember.gguf.kernels` that has it, in small letters. F32 and BF16 are as fast in NumPy."""


def decode(raw: NDArray[np.uint8], type: QuantType, out: NDArray[np.float32]) -> None:
    """Decode `raw` [bytes], any whole number of blocks, into `out`, float32 and C-contiguous, of as many values.

    Raises UnsupportedError for a type without decoder, InputError where sizes do not fit.
    """
    if type.name in KERNELS:
        _kernel(type.name)(raw, plain.check_buffers(raw, type, out))
    else:
        plain.decode(raw, type, out)


def prepare(types: Iterable[QuantType]) -> None:
    """Compile the kernels of these types now, or load them: what `decode` would do when it first meets each."""
    for kind in types:
        if kind.name in KERNELS:
            _kernel(kind.name)


@cache
def _kernel(name: str) -> Callable[[Any, Any], None]:
    """Return the kernel (raw uint8 [bytes], out float32 [values]) of a type."""
    module = import_module(f"ember.gguf.kernels.{KERNELS[name]}")
    compiled: Callable[[Any, Any], None] = getattr(module, name.lower())
    return compiled
