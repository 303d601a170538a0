"""Quantised weights for made-up models: gguf-py's own quantisers, and random blocks where it has none (K-quants)."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

SUPER_BLOCK = 256


def quantised(values: NDArray[np.float32], type_name: str, seed: list[int]) -> NDArray[np.generic]:
    """Give the bytes of [rows, columns] in a ggml type; K-quants are drawn anew with the same standard deviation."""
    if type_name == "F32":
        return values
    drawn = {"Q4_K": _random_q4_k, "Q6_K": _random_q6_k}.get(type_name)
    if drawn is None:
        encoded: NDArray[np.generic] = gguf.quantize(values, Type[type_name])
        return encoded.view(np.float16) if type_name == "F16" else encoded
    rows, columns = values.shape
    if columns % SUPER_BLOCK:
        raise ValueError(f"{type_name} needs rows of a multiple of {SUPER_BLOCK} weights, not {columns}")
    blocks = drawn(rows * columns // SUPER_BLOCK, float(values.std()), np.random.default_rng(seed))
    return blocks.reshape(rows, -1)


def _half_bytes(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    return values.astype("<f2").reshape(-1, 1).view(np.uint8)


def _random_q4_k(count: int, deviation: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Weight = d·sc·q - dmin·m with q uniform in 0..15: m = sc and dmin = 7.5 d centre it on zero."""
    scales = rng.integers(24, 64, (count, 8), dtype=np.uint8)
    step = deviation / (4.61 * 44) * rng.uniform(0.9, 1.1, count)
    low, high = scales[:, :4], scales[:, 4:]
    packed_low = low | (high >> 4) << 6
    packed_high = (high & 15) | (high & 15) << 4
    quants = rng.integers(0, 256, (count, 128), dtype=np.uint8)
    return np.hstack([_half_bytes(step), _half_bytes(step * 7.5), packed_low, packed_low, packed_high, quants])


def _random_q6_k(count: int, deviation: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Weight = d·sc·(q - 32) with q uniform in 0..63 and sc of either sign."""
    quants = rng.integers(0, 256, (count, 192), dtype=np.uint8)
    scales = rng.integers(40, 120, (count, 16)) * rng.choice([-1, 1], (count, 16))
    step = deviation / (18.5 * 80) * rng.uniform(0.9, 1.1, count)
    return np.hstack([quants, scales.astype(np.int8).view(np.uint8), _half_bytes(step)])
