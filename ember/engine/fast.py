"""The fast route: the same operations in the same order, element-wise work in kernels, buffers kept from call to call.

Differs from the reference only by rounding: within the envelopes of `ember.tolerances`.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.engine import kernels
from ember.engine.cache import LayerCache, Seen
from ember.engine.linear import Linear
from ember.engine.padding import least_rows
from ember.engine.rope import Rope, RopeTables
from ember.engine.row_attention import RowPlan, plan_rows
from ember.engine.row_attention_kernel import attend_cached, attend_rows
from ember.engine.team import PER_NANOSECOND, Team
from ember.engine.vectors import whole_lanes
from ember.engine.weights import HEAD_SLICE_BYTES, WeightStore, slice_borders
from ember.units import PrefixTree
from ember.work import Floats, Tokens


class Buffers:
    """Flat scratch by role, grown when needed and never given back: nothing is allocated in steady state."""

    def __init__(self) -> None:
        self._flat: dict[str, Floats] = {}
        self._last: dict[str, Floats] = {}

    def take(self, role: str, *shape: int) -> Floats:
        """Return an uninitialised C-contiguous array of `shape`, valid until the role is taken again."""
        last = self._last.get(role)
        if last is not None and last.shape == shape:  # as every token while decoding
            return last
        size = math.prod(shape)
        if role not in self._flat or self._flat[role].size < size:
            self._flat[role] = np.empty(size, np.float32)
        self._last[role] = self._flat[role][:size].reshape(shape)
        return self._last[role]


class FastBackend:
    """Primitives on numba kernels and BLAS (see `ember.engine.backend`)."""

    route = "fast"
    products = "blas sgemm"

    def __init__(self, store: WeightStore, team: Team) -> None:
        self.store = store
        self.team = team
        self._buffers = Buffers()
        self._tables: dict[int, RopeTables] = {}
        self._decoding: FastBackend | None = None
        self._counted = np.empty(0, np.int32)

    def for_decode(self) -> "FastBackend":
        """See `Backend.for_decode`."""
        if self._decoding is None:
            from ember.engine.packed import PackedBackend  # a kind of this class; compiles or loads its kernels

            self._decoding = PackedBackend(self)
        return self._decoding

    def embed(self, weight: Linear, tokens: Tokens) -> Floats:
        """See `Backend.embed`."""
        return self.store.gather(weight, tokens)

    def matmul(self, x: Floats, weight: Linear) -> Floats:
        """See `Backend.matmul`."""
        borders = slice_borders(weight.out_features, weight.in_features)
        least = max(least_rows(stop - start, weight.in_features) for start, stop in borders)
        rows = self._padded(x, least)
        out = self._buffers.take(weight.role, len(rows), weight.out_features)
        for start, stop, part in self.store.slices(weight):
            np.matmul(rows, part.T, out=out[:, start:stop])
        return out[: len(x)]

    def _padded(self, x: Floats, least: int) -> Floats:
        if len(x) >= least:
            return x
        rows = self._buffers.take("padding", least, x.shape[1])
        rows[: len(x)] = x
        rows[len(x) :] = 0
        return rows

    def head_slices(self, x: Floats, weight: Linear) -> Iterator[tuple[int, int, Floats]]:
        """Yield (start, stop, x @ weight[start:stop].T) over the vocabulary: [T, D] -> [T, stop - start] each."""
        for start, stop, part in self.store.slices(weight, HEAD_SLICE_BYTES):
            rows = self._padded(x, least_rows(*part.shape))
            out = self._buffers.take("head", len(rows), stop - start)
            np.matmul(rows, part.T, out=out)
            yield start, stop, out[: len(x)]

    def rms_norm(self, x: Floats, weight: Floats, eps: float, role: str) -> Floats:
        """See `Backend.rms_norm`."""
        out = self._buffers.take(role, *x.shape)
        self._by_rows(kernels.rms_norm, (x, out), weight, np.float32(eps))
        return out

    def rope(self, x: Floats, positions: NDArray[np.int32], rope: Rope, role: str) -> Floats:
        """See `Backend.rope`; turns x in place."""
        tables = RopeTables.of(rope, self._tables)
        tables.reach(positions)
        turn = kernels.rope_neighbours if rope.layout == "neighbours" else kernels.rope_halves
        self._by_rows(turn, (x, positions), tables.cos, tables.sin, rope.rotated)
        return x

    def head_norm(self, x: Floats, weight: Floats, eps: float, role: str) -> Floats:
        """See `Backend.head_norm`."""
        heads = x.reshape(-1, len(weight))  # [T·heads, E]
        return self.rms_norm(heads, weight, eps, role).reshape(x.shape)

    def layer_norm(self, x: Floats, weight: Floats, bias: Floats, eps: float, role: str) -> Floats:
        """See `Backend.layer_norm`."""
        out = self._buffers.take(role, *x.shape)
        self._by_rows(kernels.layer_norm, (x, out), weight, bias, np.float32(eps))
        return out

    def scale(self, x: Floats, factor: float) -> Floats:
        """See `Backend.scale`."""
        x *= np.float32(factor)
        return x

    def add_bias(self, x: Floats, bias: Floats, role: str) -> Floats:
        """See `Backend.add_bias`; writes into x."""
        self._by_rows(kernels.add_bias, (x,), bias)
        return x

    def gelu(self, x: Floats) -> Floats:
        """See `Backend.gelu`; writes into x."""
        self._by_rows(kernels.gelu, (x,))
        return x

    def gelu_mul(self, gate: Floats, up: Floats) -> Floats:
        """See `Backend.gelu_mul`; writes into gate."""
        self._by_rows(kernels.gelu_mul, (gate, up))
        return gate

    def silu_mul(self, gate: Floats, up: Floats) -> Floats:
        """See `Backend.silu_mul`; writes into gate."""
        self._by_rows(kernels.silu_mul, (gate, up))
        return gate

    def add(self, x: Floats, y: Floats, role: str) -> Floats:
        """See `Backend.add`; writes into x."""
        self._by_rows(kernels.add, (x, y))
        return x

    def _by_rows(self, kernel: Callable[..., Any], rows: tuple[NDArray[Any], ...], *same: Any) -> None:
        """Run a kernel on arrays of as many rows, and on arguments that are the same for all rows."""
        first = rows[0]
        if self.team.works_alone(first.size):  # about a value a nanosecond
            kernel(*rows, *same)
        else:
            self.team.share(len(first), first.size, lambda start, stop: kernel(*(a[start:stop] for a in rows), *same))

    def plan_attention(self, tree: PrefixTree, wanted: NDArray[np.int32], window: int) -> RowPlan:
        """See `Backend.plan_attention`."""
        return plan_rows(tree, wanted, window)

    def attend(self, q: Floats, k: Floats, v: Floats, plan: RowPlan, heads: tuple[int, int], scale: float) -> Floats:
        """See `Backend.attend`: row by row."""
        n_heads, n_kv = heads
        wide_q, wide_k, wide_v = _roomy(q, n_heads), _roomy(k, n_kv), _roomy(v, n_kv)
        room, size = wide_v.shape[1] // n_kv, v.shape[1] // n_kv
        out = self._buffers.take("attended", len(q), n_heads * room)
        rows = (wide_q, wide_k, wide_v, plan.paths, plan.path_starts, plan.places, plan.positions, plan.query_starts)
        shape = (plan.window, n_kv, n_heads // n_kv, np.float32(scale))

        def part(first: int, end: int) -> None:
            attend_rows(*rows, *shape, first, end, np.empty((4, plan.longest), np.float32), out)

        items = (len(plan.path_starts) - 1) * n_heads
        self.team.share(items, plan.pairs * (q.shape[1] + out.shape[1]) / PER_NANOSECOND, part, 1)
        return _narrow(out, n_heads, size)

    def attend_cached(self, q: Floats, cache: LayerCache, seen: Seen, heads: tuple[int, int], scale: float) -> Floats:
        """See `Backend.attend_cached`."""
        n_heads, n_kv = heads
        key_room, value_room = cache.key_rows.shape[1], cache.value_rows.shape[1]
        out = self._buffers.take("attended", len(q), n_heads * value_room)
        attend_cached(
            _roomy(q, n_heads),
            cache.keys,
            cache.values,
            seen.key_starts,
            seen.value_starts,
            seen.capacities,
            seen.begins,
            seen.ends,
            self._ascending(seen.longest),
            key_room,
            value_room,
            n_kv,
            n_heads // n_kv,
            np.float32(scale),
            self._buffers.take("cached_scores", 1, seen.longest),
            out,
        )
        return _narrow(out, n_heads, cache.shape.value_size)

    def _ascending(self, count: int) -> NDArray[np.int32]:
        if len(self._counted) < count:
            self._counted = np.arange(2 * count, dtype=np.int32)
        return self._counted


def _roomy(x: Floats, heads: int) -> Floats:
    """Rows whose heads fill whole lanes, [T, heads·E] -> [T, heads·room]; as they are where they do."""
    size = x.shape[1] // heads
    if size == whole_lanes(size):
        return x
    out = np.zeros((len(x), heads, whole_lanes(size)), np.float32)
    out[:, :, :size] = x.reshape(len(x), heads, size)
    return out.reshape(len(x), -1)


def _narrow(out: Floats, heads: int, size: int) -> Floats:
    """What `_roomy` undoes: [T, heads·room] -> [T, heads·size]."""
    if out.shape[1] == heads * size:
        return out
    return np.ascontiguousarray(out.reshape(len(out), heads, -1)[:, :, :size]).reshape(len(out), -1)
