"""The primitives that families are written in. Two classes implement them: `reference` and `fast`.

Rows are independent: no primitive mixes token rows, except attention, which the step arranges. A result may reuse
memory: it is valid until the same primitive runs again for the same role, and `add` may write into its first operand.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ember.engine.cache import LayerCache, Seen
from ember.engine.linear import Linear
from ember.engine.rope import Rope
from ember.units import PrefixTree
from ember.work import Floats, Tokens


class Backend(Protocol):
    """Math of one route. T token rows, D width, N and K features out and in, E head width."""

    route: str
    products: str
    """What multiplies rows by weights: a name for records."""

    def for_decode(self) -> "Backend":
        """The primitives of the same route while decoding, when rows are few."""

    def embed(self, weight: Linear, tokens: Tokens) -> Floats:
        """Rows of an embedding, decoded on demand: [T] -> [T, D]."""

    def matmul(self, x: Floats, weight: Linear) -> Floats:
        """x @ weight.T: [T, K] -> [T, N]."""

    def head_slices(self, x: Floats, weight: Linear) -> Iterator[tuple[int, int, Floats]]:
        """x @ weight[start:stop].T over the vocabulary: yields (start, stop, [T, stop - start])."""

    def rms_norm(self, x: Floats, weight: Floats, eps: float, role: str) -> Floats:
        """x / sqrt(mean(x²) + eps) · weight over the last axis: [T, D] -> [T, D]."""

    def rope(self, x: Floats, positions: NDArray[np.int32], rope: Rope, role: str) -> Floats:
        """Turn the pairs of every head in x by their positions: [T, heads·E] -> [T, heads·E]."""

    def head_norm(self, x: Floats, weight: Floats, eps: float, role: str) -> Floats:
        """RMS norm of every head by itself, weight [E]: [T, heads·E] -> [T, heads·E]."""

    def layer_norm(self, x: Floats, weight: Floats, bias: Floats, eps: float, role: str) -> Floats:
        """(x - mean) / sqrt(variance + eps) · weight + bias over the last axis: [T, D] -> [T, D]."""

    def scale(self, x: Floats, factor: float) -> Floats:
        """x · factor."""

    def add_bias(self, x: Floats, bias: Floats, role: str) -> Floats:
        """x + bias: [T, N] and [N] -> [T, N]."""

    def gelu(self, x: Floats) -> Floats:
        """The tanh form of GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415): [T, F] -> [T, F]."""

    def gelu_mul(self, gate: Floats, up: Floats) -> Floats:
        """gelu(gate) · up, the tanh form: [T, F] -> [T, F]."""

    def silu_mul(self, gate: Floats, up: Floats) -> Floats:
        """silu(gate) · up: [T, F] -> [T, F]."""

    def add(self, x: Floats, y: Floats, role: str) -> Floats:
        """x + y."""

    def plan_attention(self, tree: PrefixTree, wanted: NDArray[np.int32], window: int) -> Any:
        """Arrange the queries of the rows `wanted` and the keys that each sees; only `attend` knows what it returns."""

    def attend(self, q: Floats, k: Floats, v: Floats, plan: Any, heads: tuple[int, int], scale: float) -> Floats:
        """Causal attention of query rows q [T, H·E] over key rows k, v [R + 1, K·E] (the last one zeros)."""

    def attend_cached(self, q: Floats, cache: LayerCache, seen: Seen, heads: tuple[int, int], scale: float) -> Floats:
        """Attention of one query a sequence, q [S, H·E], over its cached keys and values, in a fixed order."""
