"""The fast route while decoding: few rows, so weights are read packed, where they lie in the mapped file.

A product's bits depend on its row and weight alone (see `ember.engine.vectors`): not on the rows beside it, the slices
of the vocabulary, the threads, or whether a type has a kernel of its own or is decoded a few rows at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ember.engine.fast import FastBackend
from ember.engine.linear import Linear
from ember.engine.packed_kernels import BLOCK_VALUES, KINDS, PRODUCTS
from ember.engine.relay import Relay
from ember.engine.team import PER_NANOSECOND, Part
from ember.engine.vectors import whole_lanes
from ember.work import Floats

DECODED_BYTES: Final = 256 << 10
"""Decoded bytes of the rows that a type without kernel decodes at a time: they stay in the cache of a core."""
LOGIT_BYTES: Final = 8 << 20
"""Bytes of logits that are shown at a time."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A weight as the file holds it."""

    raw: NDArray[np.uint8]
    row_bytes: int
    kind: int | None
    """Its type's place in `KINDS`; None: there is no kernel for it, and it is decoded a few rows at a time."""

    def rows(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Bytes of some rows."""
        return self.raw[start * self.row_bytes : stop * self.row_bytes]


class PackedBackend(FastBackend):
    """`FastBackend` with products of packed weights (see `ember.engine.backend`); shares its scratch."""

    products = "packed rows"

    def __init__(self, prefill: FastBackend) -> None:
        super().__init__(prefill.store, prefill.team)
        self._buffers, self._tables = prefill._buffers, prefill._tables
        self._relay = Relay(self.team.threads)
        self._known: dict[int, tuple[Linear, Stored]] = {}  # by identity: hashing a weight takes longer than finding it

    def for_decode(self) -> "PackedBackend":
        """See `Backend.for_decode`."""
        return self

    def matmul(self, x: Floats, weight: Linear) -> Floats:
        """See `Backend.matmul`."""
        out = self._buffers.take(weight.role, len(x), weight.out_features)
        stored = self._stored(weight)
        self._multiply(x, weight, stored, stored.raw, out)
        return out

    def head_slices(self, x: Floats, weight: Linear) -> Iterator[tuple[int, int, Floats]]:
        """See `Backend.head_slices`."""
        step, stored = max(1, LOGIT_BYTES // (4 * len(x))), self._stored(weight)
        for start in range(0, weight.out_features, step):
            stop = min(start + step, weight.out_features)
            out = self._buffers.take("head", len(x), stop - start)
            self._multiply(x, weight, stored, stored.rows(start, stop), out)
            yield start, stop, out

    def _multiply(self, x: Floats, weight: Linear, stored: Stored, raw: NDArray[np.uint8], out: Floats) -> None:
        """out [S, N] = x @ rows.T, the N rows of the weight that `raw` holds."""
        rows = np.ascontiguousarray(x)
        if stored.kind is not None:
            self._relay.multiply(stored.kind, raw, rows, out)
            return
        multiplications = x.size * out.shape[1]
        part = self._decoded_part(rows, weight, raw, out)
        self.team.share(out.shape[1], multiplications / PER_NANOSECOND, part)

    def _stored(self, weight: Linear) -> Stored:
        known = self._known.get(id(weight))
        if known is None:
            name = weight.info.type.name
            fits = name in PRODUCTS and weight.in_features % BLOCK_VALUES[name] == 0
            kind = KINDS.index(name) if fits else None
            # the weight is kept with it, so that its identity is not given to another
            known = weight, Stored(self.store.stored(weight), weight.info.row_bytes, kind)
            self._known[id(weight)] = known
        return known[1]

    def _decoded_part(self, x: Floats, weight: Linear, raw: NDArray[np.uint8], out: Floats) -> Part:
        """The way of types without kernel: decode some rows, padded to whole lanes, and multiply them as float32."""
        width = whole_lanes(x.shape[1])
        wide = np.zeros((len(x), width), np.float32)
        wide[:, : x.shape[1]] = x
        at_once = max(4, DECODED_BYTES // (4 * width) // 4 * 4)

        def part(start: int, stop: int) -> None:
            rows = np.zeros((min(at_once, stop - start), width), np.float32)
            for first in range(start, stop, at_once):
                count = min(at_once, stop - first)
                self.store.decode_stored(weight, raw, first, rows[:count, : x.shape[1]])
                product = np.empty((len(x), count), np.float32)
                PRODUCTS["F32"](rows.view(np.uint8).reshape(-1), wide, product, 0, count)
                out[:, first : first + count] = product

        return part
