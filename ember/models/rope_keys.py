"""Reading the `rope.*` keys, which the families with rotary positions share."""

import numpy as np
from numpy.typing import NDArray

from ember.engine.rope import PairLayout, Rope
from ember.errors import ModelError, UnsupportedError
from ember.gguf import GGUFFile
from ember.models.keys import KeyReader

FACTORS = "rope_freqs.weight"


def read_rope(
    file: GGUFFile, keys: KeyReader, head_size: int, layout: PairLayout, *, default_base: float = 10000.0
) -> Rope:
    """Read base, scaling and factors for heads that turn as a whole. Raises ModelError and UnsupportedError."""
    rotated = keys.integer("rope.dimension_count", head_size)
    check_rotated(file, keys.architecture, rotated, head_size)
    return Rope(
        base=keys.number("rope.freq_base", default_base),
        rotated=rotated,
        layout=layout,
        linear_factor=linear_factor(file, keys),
        factors=frequency_factors(file, rotated // 2),
    )


def check_rotated(file: GGUFFile, architecture: str, rotated: int, head_size: int) -> None:
    """Refuse heads of odd width and heads that turn in part."""
    if rotated != head_size:
        raise UnsupportedError(
            f"{file.path}: {architecture}.rope.dimension_count = {rotated}, but heads are {head_size} wide; "
            f"partial rotation is not supported in the {architecture} family"
        )
    if rotated % 2:
        raise ModelError(f"{file.path}: {architecture}.rope.dimension_count: found {rotated}, expected an even number")


def linear_factor(file: GGUFFile, keys: KeyReader) -> float:
    """Return the divisor of all angles: linear scaling works, other kinds are refused."""
    keys.refuse_unless("rope.scaling.type", ("none", "linear"), "this RoPE scaling is not supported")
    # a factor without a type is linear, as in llama.cpp (llama-model.cpp, load_hparams)
    if file.metadata.get(f"{keys.architecture}.rope.scaling.type") == "none":
        return 1.0
    old = keys.number("rope.scale_linear") if keys.present("rope.scale_linear") else 1.0
    return keys.number("rope.scaling.factor", old)


def frequency_factors(file: GGUFFile, pairs: int) -> NDArray[np.float64] | None:
    """Return the divisors of single frequencies, or None where the file has none."""
    if FACTORS not in file.tensors:
        return None
    factors = np.asarray(file.view(FACTORS), np.float64)
    if factors.shape != (pairs,) or not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ModelError(f"{file.path}: {FACTORS}: expected {pairs} positive finite factors, found {factors.shape}")
    return factors
