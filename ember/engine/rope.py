"""Rotary position embedding: which pairs turn, by which angle, and the tables of cosines and sines.

Su et al. 2021 (arXiv 2104.09864). Angles are formed in float64 and the tables kept as float32: forming them in float32,
as other implementations do, is off by up to 1e-7 radians a position.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ember.work import Floats

PairLayout = Literal["neighbours", "halves"]
"""`neighbours`: pairs are (2i, 2i+1), as in GGUF's llama; `halves`: (i, i + rotated/2), as in qwen and gemma."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Parameters of one rotation."""

    base: float
    rotated: int
    """Dimensions of a head that turn, from its start."""
    layout: PairLayout
    linear_factor: float = 1.0
    """Linear scaling: angles are divided by it."""
    factors: NDArray[np.float64] | None = None
    """[rotated / 2] divisors of the single frequencies (`rope_freqs.weight` of Llama 3.1 and 3.2)."""

    def frequencies(self) -> NDArray[np.float64]:
        """Angle per position of each pair, in radians: [rotated / 2]."""
        frequencies = self.base ** (-np.arange(0, self.rotated, 2, dtype=np.float64) / self.rotated)
        if self.factors is not None:
            frequencies = frequencies / self.factors
        return frequencies / self.linear_factor


class RopeTables:
    """Tables of one rotation, grown to the longest position asked for: sized by prompts, never by the header."""

    @classmethod
    def of(cls, rope: Rope, known: dict[int, "RopeTables"]) -> "RopeTables":
        """Return the tables of `rope` among those a backend knows, made when first asked for."""
        if id(rope) not in known:
            known[id(rope)] = cls(rope)
        return known[id(rope)]

    def __init__(self, rope: Rope) -> None:
        self._frequencies = rope.frequencies()
        self.cos: Floats = np.empty((0, rope.rotated // 2), np.float32)  # [positions, rotated / 2]
        self.sin: Floats = self.cos
        self._asked: NDArray[np.int32] | None = None

    def reach(self, positions: NDArray[np.int32]) -> None:
        """Make sure that `positions` are in the tables; they are not changed after the call."""
        if positions is self._asked:  # by the queries after the keys, and by layer after layer
            return
        n_positions = int(positions.max(initial=-1)) + 1
        have = len(self.cos)
        if n_positions > have:
            angles = np.arange(have, max(n_positions, 2 * have), dtype=np.float64)[:, None] * self._frequencies
            cos = np.concatenate([self.cos, np.cos(angles).astype(np.float32)])
            sin = np.concatenate([self.sin, np.sin(angles).astype(np.float32)])
            self.cos, self.sin = cos, sin  # together: kernels check no bounds
        self._asked = positions
