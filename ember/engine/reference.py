"""The reference route: plain NumPy, to be read next to the papers. It defines what is right.

Every operation makes a new array. Reductions run over contiguous last axes only, since NumPy's order of summation
depends on the layout. The dtype can be float64, to tell rounding from mistakes; results are then float64 throughout.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.engine.attention import TileGroup, mask_of, plan_tiles
from ember.engine.cache import LayerCache, Seen
from ember.engine.linear import Linear
from ember.engine.padding import least_rows
from ember.engine.rope import Rope, RopeTables
from ember.engine.weights import HEAD_SLICE_BYTES, WeightStore
from ember.units import PrefixTree
from ember.work import Floats, Tokens


def softmax(scores: Floats) -> Floats:
    """Softmax over the last axis, max-subtracted; a row that is masked throughout becomes uniform."""
    top = scores.max(axis=-1, keepdims=True)
    masked = np.isneginf(top)
    weights = np.exp(scores - np.where(masked, 0, top))
    weights = np.where(masked, 1, weights)
    result: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return result


class ReferenceBackend:
    """Primitives in NumPy (see `ember.engine.backend`)."""

    route = "reference"
    products = "blas sgemm"

    def __init__(self, store: WeightStore, dtype: type[np.floating[Any]] = np.float32) -> None:
        self.store = store
        self.dtype = dtype
        self._tables: dict[int, RopeTables] = {}

    def for_decode(self) -> "ReferenceBackend":
        """See `Backend.for_decode`: the same way for few rows and many."""
        return self

    def embed(self, weight: Linear, tokens: Tokens) -> Floats:
        """See `Backend.embed`."""
        return self.store.gather(weight, tokens).astype(self.dtype)

    def matmul(self, x: Floats, weight: Linear) -> Floats:
        """See `Backend.matmul`."""
        parts = [self._product(x, rows) for _, _, rows in self.store.slices(weight)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def head_slices(self, x: Floats, weight: Linear) -> Iterator[tuple[int, int, Floats]]:
        """Yield (start, stop, x @ weight[start:stop].T) over the vocabulary: [T, D] -> [T, stop - start] each."""
        for start, stop, rows in self.store.slices(weight, HEAD_SLICE_BYTES):
            yield start, stop, self._product(x, rows)

    def _product(self, x: Floats, rows: Floats) -> Floats:
        least = least_rows(*rows.shape)
        if len(x) < least:
            padded = np.zeros((least, x.shape[1]), self.dtype)
            padded[: len(x)] = x
        else:
            padded = x
        result: Floats = (padded @ rows.T.astype(self.dtype, copy=False))[: len(x)]
        return result

    def rms_norm(self, x: Floats, weight: Floats, eps: float, role: str) -> Floats:
        """See `Backend.rms_norm`."""
        mean = np.mean(np.square(x), axis=-1, keepdims=True)
        result: Floats = x / np.sqrt(mean + self.dtype(eps)) * weight
        return result

    def rope(self, x: Floats, positions: NDArray[np.int32], rope: Rope, role: str) -> Floats:
        """See `Backend.rope`."""
        cos, sin = self._angles(rope, positions)  # [T, 1, E/2]
        heads = x.reshape(len(x), -1, rope.rotated)  # [T, heads, E]
        out = np.empty_like(heads)
        half = rope.rotated // 2
        even = slice(0, None, 2) if rope.layout == "neighbours" else slice(0, half)
        odd = slice(1, None, 2) if rope.layout == "neighbours" else slice(half, None)
        a, b = heads[..., even], heads[..., odd]
        out[..., even] = a * cos - b * sin
        out[..., odd] = a * sin + b * cos
        return out.reshape(x.shape)

    def _angles(self, rope: Rope, positions: NDArray[np.int32]) -> tuple[Floats, Floats]:
        if self.dtype is np.float64:
            angles = positions[:, None].astype(np.float64) * rope.frequencies()
            return np.cos(angles)[:, None], np.sin(angles)[:, None]
        tables = RopeTables.of(rope, self._tables)
        tables.reach(positions)
        return tables.cos[positions][:, None], tables.sin[positions][:, None]

    def head_norm(self, x: Floats, weight: Floats, eps: float, role: str) -> Floats:
        """See `Backend.head_norm`."""
        heads = x.reshape(-1, len(weight))  # [T·heads, E]
        return self.rms_norm(heads, weight, eps, role).reshape(x.shape)

    def layer_norm(self, x: Floats, weight: Floats, bias: Floats, eps: float, role: str) -> Floats:
        """See `Backend.layer_norm`."""
        centred = x - np.mean(x, axis=-1, keepdims=True)
        variance = np.mean(np.square(centred), axis=-1, keepdims=True)
        result: Floats = centred / np.sqrt(variance + self.dtype(eps)) * weight + bias
        return result

    def scale(self, x: Floats, factor: float) -> Floats:
        """See `Backend.scale`."""
        return x * self.dtype(factor)

    def add_bias(self, x: Floats, bias: Floats, role: str) -> Floats:
        """See `Backend.add_bias`."""
        return x + bias

    def gelu(self, x: Floats) -> Floats:
        """See `Backend.gelu`."""
        inner = self.dtype(np.sqrt(2 / np.pi)) * (x + self.dtype(0.044715) * x * x * x)
        result: Floats = self.dtype(0.5) * x * (1 + np.tanh(inner))
        return result

    def gelu_mul(self, gate: Floats, up: Floats) -> Floats:
        """See `Backend.gelu_mul`."""
        return self.gelu(gate) * up

    def silu_mul(self, gate: Floats, up: Floats) -> Floats:
        """See `Backend.silu_mul`; silu(x) = x / (1 + exp(-x)), whose overflow to infinity gives the right zero."""
        with np.errstate(over="ignore"):
            result: Floats = gate / (1 + np.exp(-gate)) * up
        return result

    def add(self, x: Floats, y: Floats, role: str) -> Floats:
        """See `Backend.add`."""
        return x + y

    def plan_attention(self, tree: PrefixTree, wanted: NDArray[np.int32], window: int) -> list[TileGroup]:
        """See `Backend.plan_attention`."""
        return plan_tiles(tree, wanted, window)

    def attend(
        self, q: Floats, k: Floats, v: Floats, plan: list[TileGroup], heads: tuple[int, int], scale: float
    ) -> Floats:
        """See `Backend.attend`: in canonical tiles."""
        n_heads, n_kv = heads
        q_heads = _with_zero_row(q).reshape(len(q) + 1, n_kv, n_heads // n_kv, -1)  # [T + 1, K, H/K, E]
        k_heads = k.reshape(len(k), n_kv, -1)  # [R + 1, K, E]
        v_heads = v.reshape(len(v), n_kv, -1)
        out = np.zeros((len(q), n_kv, n_heads // n_kv, v_heads.shape[-1]), self.dtype)
        for group in plan:
            tiles, block = group.queries.shape
            queries = q_heads[group.queries].transpose(0, 2, 3, 1, 4)  # [tiles, K, H/K, 32, E]
            queries = queries.reshape(tiles, n_kv, -1, queries.shape[-1])  # [tiles, K, H/K·32, E]
            keys = k_heads[group.keys].transpose(0, 2, 3, 1)  # [tiles, K, E, keys]
            scores = (queries @ np.ascontiguousarray(keys)) * self.dtype(scale)  # [tiles, K, H/K·32, keys]
            scores = scores.reshape(tiles, n_kv, n_heads // n_kv, block, -1)
            scores[..., mask_of(group)] = -np.inf
            weights = softmax(scores).reshape(tiles, n_kv, -1, scores.shape[-1])
            values = np.ascontiguousarray(v_heads[group.keys].transpose(0, 2, 1, 3))  # [tiles, K, keys, E]
            mixed = (weights @ values).reshape(tiles, n_kv, n_heads // n_kv, block, -1).transpose(0, 3, 1, 2, 4)
            real = group.queries >= 0
            out[group.queries[real]] = mixed[real]
        return out.reshape(len(q), -1)

    def attend_cached(self, q: Floats, cache: LayerCache, seen: Seen, heads: tuple[int, int], scale: float) -> Floats:
        """See `Backend.attend_cached`: one pair of products a sequence and head, in shapes of that sequence alone."""
        n_heads, n_kv = heads
        out = np.empty((len(q), n_kv, n_heads // n_kv, cache.shape.value_size), self.dtype)
        queries = q.reshape(len(q), n_kv, n_heads // n_kv, cache.shape.key_size)
        for s, (begin, end) in enumerate(zip(seen.begins.tolist(), seen.ends.tolist(), strict=True)):
            keys = _head_block(cache.keys, seen.key_starts, seen.capacities, s, n_kv, cache.shape.key_room)
            values = _head_block(cache.values, seen.value_starts, seen.capacities, s, n_kv, cache.shape.value_room)
            keys = keys[:, begin:end, : cache.shape.key_size]  # [K, seen, E]
            values = values[:, begin:end, : cache.shape.value_size]
            scores = np.ascontiguousarray(np.einsum("gre,gpe->grp", queries[s], keys)) * self.dtype(scale)
            out[s] = np.einsum("grp,gpe->gre", softmax(scores), values)
        return out.reshape(len(q), -1)


def _with_zero_row(q: Floats) -> Floats:
    # index -1 of a tile then reads zeros
    return np.concatenate([q, np.zeros_like(q[:1])])


def _head_block(
    flat: Floats, starts: NDArray[np.int64], capacities: NDArray[np.int64], s: int, n_kv: int, size: int
) -> Floats:
    start, capacity = int(starts[s]), int(capacities[s])
    return flat[start : start + n_kv * capacity * size].reshape(n_kv, capacity, size)
