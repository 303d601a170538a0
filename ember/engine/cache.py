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
class LayerCache:
    """What one layer's attention reads for the sequences that are alive."""

    keys: Floats
    """Flat; a sequence's part is [kv_head][position][head_dim]."""
    values: Floats
    shape: "KVShape"
    seen: Seen


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


Slots = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Flat indices [S, K, E] of keys and of values."""


class KVCache:
    """Cache of a set of sequences with fixed capacities; layers that own no keys (None) have no room."""

    def __init__(self, capacities: Sequence[int], shapes: Sequence[KVShape | None]) -> None:
        self.capacities = np.array(capacities, np.int64)
        self.cursors = np.zeros(len(capacities), np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self.capacities)])
        self._shapes = tuple(shapes)
        total = int(self._starts[-1])
        sizes = [total * s.heads * (s.key_room + s.value_room) if s else 0 for s in shapes]
        flat = np.zeros(sum(sizes), np.float32)
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        cuts = [total * s.heads * s.key_room if s else 0 for s in shapes]
        self._keys = [part[:cut] for part, cut in zip(parts, cuts, strict=True)]
        self._values = [part[cut:] for part, cut in zip(parts, cuts, strict=True)]

    def shape(self, layer: int) -> KVShape:
        """What a layer that owns keys stores per position."""
        shape = self._shapes[layer]
        assert shape is not None, f"layer {layer} owns no keys"
        return shape

    def _part(self, flat: Floats, sequence: int, heads: int, size: int) -> Floats:
        start, capacity = int(self._starts[sequence]), int(self.capacities[sequence])
        return flat[start * heads * size : (start + capacity) * heads * size].reshape(heads, capacity, size)

    def store(self, layer: int, sequence: int, start: int, k: Floats, v: Floats) -> None:
        """Write rows k [n, K·E], v at positions start … start + n - 1 of a sequence."""
        n, shape = len(k), self.shape(layer)
        for flat, rows, room in ((self._keys[layer], k, shape.key_room), (self._values[layer], v, shape.value_room)):
            part = self._part(flat, sequence, shape.heads, room)  # [K, capacity, E]
            heads = rows.reshape(n, shape.heads, -1)
            part[:, start : start + n, : heads.shape[2]] = heads.transpose(1, 0, 2)

    def slots(self, sequences: NDArray[np.int64], shape: KVShape) -> Slots:
        """Where keys and values at the cursors of `sequences` lie; the same in every layer of this shape."""
        heads = np.arange(shape.heads)[:, None] * self.capacities[sequences][:, None, None]  # [S, K, 1]
        places = self._starts[sequences][:, None, None] * shape.heads + heads + self.cursors[sequences][:, None, None]
        keys = places * shape.key_room + np.arange(shape.key_size)
        values = places * shape.value_room + np.arange(shape.value_size)
        return keys, values

    def store_one(self, layer: int, slots: Slots, k: Floats, v: Floats) -> None:
        """Write one row a sequence, k [S, K·E] and v, at the places given by `slots`."""
        self._keys[layer][slots[0]] = k.reshape(slots[0].shape)
        self._values[layer][slots[1]] = v.reshape(slots[1].shape)

    def advance(self, sequences: NDArray[np.int64], count: NDArray[np.int64] | int) -> None:
        """Move cursors, after every layer has stored."""
        self.cursors[sequences] += count

    def seen(self, shape: KVShape, sequences: NDArray[np.int64], window: int = 0) -> Seen:
        """What `sequences` see in layers of a shape, each up to and including its cursor's position."""
        starts = self._starts[sequences] * shape.heads
        ends = self.cursors[sequences] + 1
        begins = np.maximum(ends - window, 0) if window else np.zeros_like(ends)
        capacities = self.capacities[sequences]
        longest = int((ends - begins).max(initial=0))
        return Seen(starts * shape.key_room, starts * shape.value_room, capacities, begins, ends, longest)

    def layer(self, layer: int, seen: Seen) -> LayerCache:
        """View of one layer for the sequences that `seen` is about."""
        return LayerCache(self._keys[layer], self._values[layer], self.shape(layer), seen)
