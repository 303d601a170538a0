"""Keys and values of sequences that generate: one flat allocation, written at explicit positions.

Layout: [layer][sequence][kv_head][position][head_dim]. The cursor of a sequence moves once all layers have stored, so
that a prefill of many tokens can never overwrite itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ember.engine.vectors import whole_lanes
from ember.work import Floats


@dataclass(frozen=True, slots=True)
class Seen:
    """What the sequences alive see in layers of one shape and window: the same in all of them."""

    key_starts: NDArray[np.int64]
    """[sequences] where each sequence's part starts in `keys`."""
    value_starts: NDArray[np.int64]
    capacities: NDArray[np.int64]
    """[sequences] positions that a head has room for."""
    begins: NDArray[np.int64]
    """[sequences] first position that is seen: 0, or later under a window."""
    ends: NDArray[np.int64]
    """[sequences] one past the last position that is seen, the current one."""
    longest: int
    """Most positions that one of them sees."""


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one layer stores per position."""

    heads: int
    key_size: int
    value_size: int

    @property
    def key_room(self) -> int:
        """Values kept for a key: whole lanes, the last ones zero."""
        return whole_lanes(self.key_size)

    @property
    def value_room(self) -> int:
        """Values kept for a value: whole lanes, the last ones zero."""
        return whole_lanes(self.value_size)


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer; a sequence's part is [kv_head][position], one row each."""

    shape: KVShape
    key_rows: Floats
    """[rows, key_room]"""
    value_rows: Floats
    """[rows, value_room]"""

    @property
    def keys(self) -> Floats:
        """All keys, flat."""
        return self.key_rows.reshape(-1)

    @property
    def values(self) -> Floats:
        """All values, flat."""
        return self.value_rows.reshape(-1)

    def store(self, rows: NDArray[np.int64], k: Floats, v: Floats) -> None:
        """Write one row a sequence and head, k [S, K·E] and v, into `rows` [S·K] (see `KVCache.slots`)."""
        shape = self.shape
        self.key_rows[rows, : shape.key_size] = k.reshape(-1, shape.key_size)
        self.value_rows[rows, : shape.value_size] = v.reshape(-1, shape.value_size)


class KVCache:
    """Cache of a set of sequences with fixed capacities; layers that own no keys (None) have no room."""

    def __init__(self, capacities: Sequence[int], shapes: Sequence[KVShape | None]) -> None:
        self.capacities = np.array(capacities, np.int64)
        self.cursors = np.zeros(len(capacities), np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self.capacities)])
        kinds = list(dict.fromkeys(shapes))
        self._kinds = [kinds.index(shape) for shape in shapes]
        total = int(self._starts[-1])
        sizes = [total * s.heads * (s.key_room + s.value_room) if s else 0 for s in shapes]
        flat = np.zeros(sum(sizes), np.float32)
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        cuts = [total * s.heads * s.key_room if s else 0 for s in shapes]
        self._layers = [_layer_cache(*one) for one in zip(shapes, parts, cuts, strict=True)]

    def layer(self, layer: int) -> LayerCache:
        """Keys and values of a layer that owns some."""
        found = self._layers[layer]
        assert found is not None, f"layer {layer} owns no keys"
        return found

    def kind(self, layer: int) -> int:
        """A number that layers share whose keys and values lie alike."""
        return self._kinds[layer]

    def _part(self, rows: Floats, sequence: int, heads: int) -> Floats:
        start, capacity = int(self._starts[sequence]), int(self.capacities[sequence])
        return rows[start * heads : (start + capacity) * heads].reshape(heads, capacity, -1)

    def store(self, layer: int, sequence: int, start: int, k: Floats, v: Floats) -> None:
        """Write rows k [n, K·E], v at positions start … start + n - 1 of a sequence."""
        n, own = len(k), self.layer(layer)
        for kept, rows in ((own.key_rows, k), (own.value_rows, v)):
            part = self._part(kept, sequence, own.shape.heads)  # [K, capacity, E]
            heads = rows.reshape(n, own.shape.heads, -1)
            part[:, start : start + n, : heads.shape[2]] = heads.transpose(1, 0, 2)

    def slots(self, sequences: NDArray[np.int64], layer: int) -> NDArray[np.int64]:
        """Rows [S·K] of keys and values at the cursors of `sequences`; the same in every layer of this kind."""
        n_heads = self.layer(layer).shape.heads
        firsts = self._starts[sequences] * n_heads + self.cursors[sequences]
        heads = np.arange(n_heads) * self.capacities[sequences][:, None]  # [S, K]
        return (firsts[:, None] + heads).reshape(-1)

    def advance(self, sequences: NDArray[np.int64], count: NDArray[np.int64] | int) -> None:
        """Move cursors, after every layer has stored."""
        self.cursors[sequences] += count

    def seen(self, layer: int, sequences: NDArray[np.int64], window: int = 0) -> Seen:
        """What `sequences` see in layers of this kind, each up to and including its cursor's position."""
        shape = self.layer(layer).shape
        starts = self._starts[sequences] * shape.heads
        ends = self.cursors[sequences] + 1
        begins = np.maximum(ends - window, 0) if window else np.zeros_like(ends)
        capacities = self.capacities[sequences]
        longest = int((ends - begins).max(initial=0))
        return Seen(starts * shape.key_room, starts * shape.value_room, capacities, begins, ends, longest)


def _layer_cache(shape: KVShape | None, part: Floats, cut: int) -> LayerCache | None:
    if shape is None:
        return None
    return LayerCache(shape, part[:cut].reshape(-1, shape.key_room), part[cut:].reshape(-1, shape.value_room))
