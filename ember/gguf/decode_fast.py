"""Stored values to float32 by compiled kernels where there are any, else by NumPy: the same bits either way."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.gguf import decode as plain
from ember.gguf import kernels
from ember.gguf.types import QuantType
from ember.numba_support import HAVE_NUMBA

KERNELS: Final[dict[str, Callable[[Any, Any], None]]] = (
    {
        "F16": kernels.f16,
        "Q8_0": kernels.q8_0,
        "Q4_0": kernels.q4_0,
        "Q4_1": kernels.q4_1,
        "Q4_K": kernels.q4_k,
        "Q6_K": kernels.q6_k,
    }
    if HAVE_NUMBA
    else {}
)
"""By type name: (raw uint8 [bytes], out float32 [values]). F32 and BF16 are as fast in NumPy."""


def decode(raw: NDArray[np.uint8], type: QuantType, out: NDArray[np.float32]) -> None:
    """Decode `raw` [bytes], any whole number of blocks, into `out`, float32 and C-contiguous, of as many values.

    Raises UnsupportedError for a type without decoder, InputError where sizes do not fit.
    """
    compiled = KERNELS.get(type.name)
    if compiled is None:
        plain.decode(raw, type, out)
    else:
        compiled(raw, plain.check_buffers(raw, type, out))
