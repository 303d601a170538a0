"""Greedy decoding in lockstep: one token of every living sequence an evaluation; finished sequences leave.

Which kernels run is fixed by the route, never by how many sequences are alive.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ember.card import BoundModel
from ember.engine.backend import Backend
from ember.engine.cache import KVCache, KVShape, Slots
from ember.engine.head import Greedy, scan
from ember.work import Floats, Produced

Index = NDArray[np.int64]


@dataclass(slots=True)
class Sequence:
    """A sequence while it grows."""

    token_ids: list[int]
    stopped: str = ""


class DecodeStep:
    """A `Step` for one token of every living sequence."""

    def __init__(self, be: Backend, cache: KVCache, alive: Index, side: Floats | None) -> None:
        self._be, self._cache, self._alive = be, cache, alive
        self._slots: dict[KVShape, Slots] = {}
        self._side = side
        self._positions = cache.cursors[alive].astype(np.int32)
        self.layer = 0

    @property
    def positions(self) -> NDArray[np.int32]:
        """See `Step.positions`."""
        return self._positions

    @property
    def key_positions(self) -> NDArray[np.int32]:
        """See `Step.key_positions`; every row is needed."""
        return self._positions

    def tap(self, site: str, a: Floats) -> None:
        """See `Step.tap`; nothing is captured while decoding."""

    def prune(self, x: Floats, h: Floats) -> tuple[Floats, Floats]:
        """See `Step.prune`; every row is needed."""
        return x, h

    def store(self, k: Floats, v: Floats) -> None:
        """See `Step.store`."""
        shape = self._cache.shape(self.layer)
        if shape not in self._slots:
            self._slots[shape] = self._cache.slots(self._alive, shape)
        self._cache.store_one(self.layer, self._slots[shape], k, v)

    def attend(
        self, q: Floats, heads: tuple[int, int], scale: float, window: int = 0, source: int | None = None
    ) -> Floats:
        """See `Step.attend`."""
        seen = self._cache.layer(self.layer if source is None else source, self._alive, window)
        return self._be.attend_cached(q, seen, heads, scale)

    def side(self) -> Floats:
        """See `Step.side`."""
        assert self._side is not None, "the family has no side inputs"
        return np.ascontiguousarray(self._side[:, self.layer])


def evaluate(model: BoundModel, be: Backend, cache: KVCache, alive: Index, tokens: NDArray[np.int32]) -> Floats:
    """Feed one token to every living sequence; returns hidden states after the final norm, [S, D]."""
    positions = cache.cursors[alive].astype(np.int32)
    x = model.family.embed(be, model.config, model.weights, tokens, positions)  # [S, D]
    step = DecodeStep(be, cache, alive, model.family.side_inputs(be, model.config, model.weights, tokens, x))
    for layer, weights in enumerate(model.weights.layers):
        step.layer = layer
        x = model.family.layer(be, model.config, weights, layer, x, step)
    cache.advance(alive, 1)
    h: Floats = model.family.final_norm(be, model.config, model.weights, x)
    return h


def decode(
    model: BoundModel, be: Backend, cache: KVCache, first: Greedy, max_tokens: int, stop_ids: tuple[int, ...]
) -> tuple[list[Produced], list[int]]:
    """Continue every sequence from the choice `first` made after its prompt.

    Returns the continuations and the sequences whose logits were not finite.
    """
    sequences = [Sequence([]) for _ in first.ids]
    broken = np.flatnonzero(first.broken).tolist()
    alive = np.flatnonzero(~first.broken)
    chosen = first.ids[alive]
    while len(alive):
        alive, chosen = _take(sequences, alive, chosen, max_tokens, stop_ids)
        if not len(alive):
            break
        greedy = Greedy(len(alive))
        scan(model, be, evaluate(model, be, cache, alive, chosen.astype(np.int32)), [greedy])
        broken += alive[greedy.broken].tolist()
        alive, chosen = alive[~greedy.broken], greedy.ids[~greedy.broken]
    return [Produced(tuple(s.token_ids), s.stopped) for s in sequences], broken


def _take(
    sequences: list[Sequence], alive: Index, chosen: Index, max_tokens: int, stop_ids: tuple[int, ...]
) -> tuple[Index, Index]:
    going = np.ones(len(alive), np.bool_)
    for i, (s, token) in enumerate(zip(alive.tolist(), chosen.tolist(), strict=True)):
        sequence = sequences[s]
        sequence.token_ids.append(token)
        if token in stop_ids:
            sequence.stopped = "stop"
        elif len(sequence.token_ids) == max_tokens:
            sequence.stopped = "length"
        going[i] = not sequence.stopped
    return alive[going], chosen[going]
