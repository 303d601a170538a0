"""Quantised weights for made-up models: gguf-py's own quantisers, and random blocks where it has none.

K-quants and most IQ types are drawn as random bytes whose scale gives the weights the standard deviation asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

SCALES_AT: Final[dict[str, tuple[int, ...]]] = {
    "F16": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
    "IQ1_S": (0,), "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,),
    "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,), "TQ2_0": (64,),
}  # fmt: skip
"""Bytes of a block's float16 scales, the scale of minima second (of F16: the value itself)."""
IQ1_M_SCALE: Final = (49, 51, 53, 55)
"""Bytes of IQ1_M whose upper halves are the quarters of its float16 scale, the lowest first."""


def put_halves(blocks: Bytes, type_name: str, *halves: NDArray[np.uint16]) -> None:
    """Write float16 scales, as bits [n], into blocks [n, bytes]; IQ1_M's in its four quarters."""
    if type_name == "IQ1_M":
        for shift, at in zip((0, 4, 8, 12), IQ1_M_SCALE, strict=True):
            blocks[:, at] = (blocks[:, at] & 15) | (halves[0] >> shift & 15) << 4
        return
    for at, half in zip(SCALES_AT[type_name], halves, strict=False):
        blocks[:, at : at + 2] = half.astype("<u2")[:, None].view(np.uint8)


def quantised(values: NDArray[np.float32], type_name: str, seed: list[int]) -> NDArray[np.generic]:
    """Give the bytes of [rows, columns] in a ggml type; drawn types keep the standard deviation, not the values."""
    if type_name == "F32":
        return values
    drawn = DRAWN.get(type_name)
    if drawn is None:
        encoded: NDArray[np.generic] = gguf.quantize(values, Type[type_name])
        return encoded.view(np.float16) if type_name == "F16" else encoded
    rows, columns = values.shape
    block_size, _ = gguf.GGML_QUANT_SIZES[Type[type_name]]
    if columns % block_size:
        raise ValueError(f"{type_name} needs rows of a multiple of {block_size} weights, not {columns}")
    blocks = drawn(rows * columns // block_size, float(values.std()), np.random.default_rng(seed))
    return blocks.reshape(rows, -1)


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Random bytes of one type: `centre` makes the minima match the scales, `minimum` is their scale's ratio."""

    type_name: str
    centre: Callable[[Bytes], None] = lambda blocks: None
    minimum: float = 0.0

    def __call__(self, count: int, deviation: float, rng: np.random.Generator) -> Bytes:
        kind = Type[self.type_name]
        blocks = rng.integers(0, 256, (count, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        self.centre(blocks)
        self._scale(blocks, np.ones(count))
        unit = float(gguf.dequantize(blocks, kind).std())
        self._scale(blocks, deviation / unit * rng.uniform(0.9, 1.1, count))
        return blocks

    def _scale(self, blocks: Bytes, step: NDArray[np.float64]) -> None:
        put_halves(blocks, self.type_name, _half(step), _half(step * self.minimum))


def _half(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    return values.astype(np.float16).view(np.uint16)


def _same_halves(blocks: Bytes) -> None:
    """Q2_K: minima as the scales, of which none is zero."""
    scales = (blocks[:, :16] & 15) | 4
    blocks[:, :16] = scales | scales << 4


def _same_sixes(blocks: Bytes) -> None:
    """Q5_K: minima as the scales, in the packing of Q4_K."""
    low, high = blocks[:, 4:8] & 63, blocks[:, 8:12] & 63
    blocks[:, 4:16] = np.hstack(_packed_sixes(low, high))


def _packed_sixes(low: Bytes, high: Bytes) -> list[Bytes]:
    """Pack 4 + 4 scales of six bits, and minima that equal them, into 12 bytes."""
    whole = low | (high >> 4) << 6
    return [whole, whole, (high & 15) | (high & 15) << 4]


def _half_bytes(values: NDArray[np.float64]) -> Bytes:
    return values.astype("<f2").reshape(-1, 1).view(np.uint8)


def _random_q4_k(count: int, deviation: float, rng: np.random.Generator) -> Bytes:
    """Weight = d·sc·q - dmin·m with q uniform in 0..15: m = sc and dmin = 7.5 d centre it on zero."""
    scales = rng.integers(24, 64, (count, 8), dtype=np.uint8)
    step = deviation / (4.61 * 44) * rng.uniform(0.9, 1.1, count)
    quants = rng.integers(0, 256, (count, 128), dtype=np.uint8)
    return np.hstack([_half_bytes(step), _half_bytes(step * 7.5), *_packed_sixes(scales[:, :4], scales[:, 4:]), quants])


def _random_q6_k(count: int, deviation: float, rng: np.random.Generator) -> Bytes:
    """Weight = d·sc·(q - 32) with q uniform in 0..63 and sc of either sign."""
    quants = rng.integers(0, 256, (count, 192), dtype=np.uint8)
    scales = rng.integers(40, 120, (count, 16)) * rng.choice([-1, 1], (count, 16))
    step = deviation / (18.5 * 80) * rng.uniform(0.9, 1.1, count)
    return np.hstack([quants, scales.astype(np.int8).view(np.uint8), _half_bytes(step)])


def _random_nvfp4(count: int, deviation: float, rng: np.random.Generator) -> Bytes:
    """Weight = scale / 2·level with 16 levels of deviation 5.85, four scales a block."""
    steps = (2 * deviation / 5.85 * rng.uniform(0.9, 1.1, (count, 4))).astype(np.float32)
    quants = rng.integers(0, 256, (count, 32), dtype=np.uint8)
    return np.hstack([gguf.quants.NVFP4.fp32_to_ue4m3(steps), quants])


_PLAIN: Final = ("Q3_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS")
DRAWN: Final[dict[str, Callable[[int, float, np.random.Generator], Bytes]]] = {
    "Q4_K": _random_q4_k,
    "Q6_K": _random_q6_k,
    "NVFP4": _random_nvfp4,
    "Q2_K": _Scaled("Q2_K", _same_halves, minimum=1.5),
    "Q5_K": _Scaled("Q5_K", _same_sixes, minimum=15.5),
    **{name: _Scaled(name) for name in _PLAIN},
}
"""By type: draws (blocks, standard deviation, generator) -> [blocks, bytes]. Q4_K's and Q6_K's are in recordings."""
