"""Two operators of ggml in float64, to take the place of what llama.cpp's CPU code makes of them.

GELU comes from a table of half-precision numbers there: it moves states of tiny gpt2 and gemma models by 4e-3 of their
size and contributions of Gemma 3 270M by 4e-2. The angles of RoPE are products of float32 numbers, off by up to 1e-7
radians a position: that moved contributions of Gemma 3 270M by 7e-4 at position 275. Either would hide mistakes.

Operands, bases, layouts, scaling and frequency factors are those of llama.cpp's graph; only the arithmetic is ours.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from ember.errors import UnsupportedError
from ember.validation import ggml
from ember.work import Floats

_NEIGHBOURS, _HALVES = 0, 2
"""Values of ggml's rope mode (GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX)."""


def gelu(tensor: int) -> Floats:
    """Compute what a GELU node should hold: the tanh form, rounded once."""
    x = ggml.values_of(ggml.source_of(tensor, 0)).astype(np.float64)
    result = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    rounded: Floats = result.astype(np.float32)
    return rounded


def geglu(tensor: int) -> Floats:
    """Compute what a GEGLU node of two operands should hold: gelu(first) times the second."""
    product: Floats = gelu(tensor) * ggml.values_of(ggml.source_of(tensor, 1))
    return product


def rope(tensor: int) -> Floats:
    """Compute what a ROPE node should hold: [T·heads, E]."""
    parameters = ggml.parameters_of(tensor)
    rotated, mode = int(parameters[1]), int(parameters[2])
    base, scale, extrapolation, magnitude = parameters[5:9].view(np.float32).astype(np.float64).tolist()
    if mode not in (_NEIGHBOURS, _HALVES) or extrapolation or magnitude != 1:
        raise UnsupportedError(f"{ggml.name_of(tensor)}: rope mode {mode}, YaRN {extrapolation}: not computed here")
    frequencies = base ** (-np.arange(0, rotated, 2) / rotated) * scale  # [rotated / 2]
    if ggml.has_source(tensor, 2):
        frequencies = frequencies / ggml.values_of(ggml.source_of(tensor, 2))[0, : rotated // 2]
    positions = ggml.integers_of(ggml.source_of(tensor, 1)).reshape(-1)
    angles = positions[:, None, None] * frequencies  # [T, 1, rotated / 2]
    _, tokens, heads, width = ggml.shape_of(tensor)
    x = ggml.values_of(ggml.source_of(tensor, 0)).reshape(tokens, heads, width).astype(np.float64)
    out, half = x.copy(), rotated // 2
    even = slice(0, rotated, 2) if mode == _NEIGHBOURS else slice(0, half)
    odd = slice(1, rotated, 2) if mode == _NEIGHBOURS else slice(half, rotated)
    out[..., even] = x[..., even] * np.cos(angles) - x[..., odd] * np.sin(angles)
    out[..., odd] = x[..., even] * np.sin(angles) + x[..., odd] * np.cos(angles)
    return out.reshape(-1, width).astype(np.float32)


EXACT: Final[dict[str, Callable[[int], Floats]]] = {"GELU": gelu, "GEGLU": geglu, "ROPE": rope}
"""By ggml's name of the operation."""
