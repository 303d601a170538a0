"""Keys and values of sequences that generate: one flat allocation, written at explicit positions.

Layout: [layer][sequence][kv_head][position][head_dim]. The cursor of a sequence moves once all layers have stored, so
that a prefill of many tokens can never overwrite itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ember.work import Floats


@dataclass(frozen=True, slots=True)
class LayerCache:
    """What one layer's attention reads for the sequences that are alive."""

    keys: Floats
    """Flat; a sequence's part is [kv_head][position][head_dim]."""
    values: Floats
    key_starts: NDArray[np.int64]
    """[sequences] where each sequence's part starts in `keys`."""
    value_starts: NDArray[np.int64]
    capacities: NDArray[np.int64]
    """[sequences] positions that a head has room for."""
    lengths: NDArray[np.int64]
    """[sequences] positions to attend to, the current one included."""
    key_size: int
    value_size: int


class KVCache:
    """Cache of a set of sequences with fixed capacities."""

    def __init__(
        self, capacities: Sequence[int], n_layers: int, n_kv_heads: int, key_size: int, value_size: int
    ) -> None:
        self.capacities = np.array(capacities, np.int64)
        self.cursors = np.zeros(len(capacities), np.int64)
        self._heads, self._key_size, self._value_size = n_kv_heads, key_size, value_size
        self._starts = np.concatenate([[0], np.cumsum(self.capacities)])
        total = int(self._starts[-1]) * n_kv_heads
        self._keys = np.zeros((n_layers, total * key_size), np.float32)
        self._values = np.zeros((n_layers, total * value_size), np.float32)

    def _part(self, flat: Floats, sequence: int, size: int) -> Floats:
        start, capacity = int(self._starts[sequence]), int(self.capacities[sequence])
        part = flat[start * self._heads * size : (start + capacity) * self._heads * size]
        return part.reshape(self._heads, capacity, size)

    def store(self, layer: int, sequence: int, start: int, k: Floats, v: Floats) -> None:
        """Write rows k [n, K·E], v at positions start … start + n - 1 of a sequence."""
        n = len(k)
        for flat, rows, size in ((self._keys[layer], k, self._key_size), (self._values[layer], v, self._value_size)):
            part = self._part(flat, sequence, size)  # [K, capacity, E]
            part[:, start : start + n] = rows.reshape(n, self._heads, size).transpose(1, 0, 2)

    def slots(self, sequences: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Flat indices [S, K, E] of the keys and values at the cursors of `sequences`; the same in every layer."""
        heads = np.arange(self._heads)[:, None] * self.capacities[sequences][:, None, None]  # [S, K, 1]
        places = self._starts[sequences][:, None, None] * self._heads + heads + self.cursors[sequences][:, None, None]
        keys = places * self._key_size + np.arange(self._key_size)
        values = places * self._value_size + np.arange(self._value_size)
        return keys, values

    def store_one(self, layer: int, slots: tuple[NDArray[np.int64], NDArray[np.int64]], k: Floats, v: Floats) -> None:
        """Write one row a sequence, k [S, K·E] and v, at the places given by `slots`."""
        self._keys[layer][slots[0]] = k.reshape(slots[0].shape)
        self._values[layer][slots[1]] = v.reshape(slots[1].shape)

    def advance(self, sequences: NDArray[np.int64], count: NDArray[np.int64] | int) -> None:
        """Move cursors, after every layer has stored."""
        self.cursors[sequences] += count

    def layer(self, layer: int, sequences: NDArray[np.int64]) -> LayerCache:
        """View of one layer for the given sequences, each seen up to and including its cursor's position."""
        starts = self._starts[sequences] * self._heads
        return LayerCache(
            self._keys[layer],
            self._values[layer],
            starts * self._key_size,
            starts * self._value_size,
            self.capacities[sequences],
            self.cursors[sequences] + 1,
            self._key_size,
            self._value_size,
        )
