"""Prefill of a unit, weight-stationary: all rows go through layer 0, then through layer 1, and so on.

Rows are the nodes of the unit's prefix tree. They go through a layer in chunks of at most CHUNK_ROWS, so that a prompt
longer than a unit needs no larger scratch; a row's history always lies in its own or an earlier chunk. The last layer
that anybody needs computes only the rows that somebody needs from it.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.card import BoundModel
from ember.engine.attention import Index
from ember.engine.backend import Backend
from ember.engine.cache import KVCache
from ember.engine.stage import Stage
from ember.sites import NO_LAYER
from ember.units import PrefixTree
from ember.work import Floats, NonFinite

CHUNK_ROWS: Final = 4096


class ChunkRows:
    """One chunk in one state, whole or pruned: positions, places and attention, made when first needed."""

    def __init__(self, tree: PrefixTree, be: Backend, rows: Index) -> None:
        self._tree, self._be = tree, be
        self.rows = rows
        """Rows of the tree, ascending."""
        self.positions = tree.positions[rows]
        self.where = tree.places(rows)
        self._plans: dict[int, Any] = {}

    def attention(self, window: int) -> Any:
        """What `Backend.attend` needs to know of these rows under a window."""
        if window not in self._plans:
            self._plans[window] = self._be.plan_attention(self._tree, self.rows, window)
        return self._plans[window]


class Prefill:
    """One evaluation of all prompts of a unit."""

    def __init__(self, model: BoundModel, be: Backend, tree: PrefixTree, stage: Stage, kept: Index, depth: int) -> None:
        self.model, self.be, self.tree, self.stage = model, be, tree, stage
        self.kept = kept
        """Rows that somebody needs from layer `depth - 1`, ascending."""
        self.depth = depth
        self.failures: dict[int, NonFinite] = {}
        shapes = model.family.cache_shapes(model.config)
        self._owners = frozenset(layer for layer, shape in enumerate(shapes) if shape is not None)
        self._sources: frozenset[int] = model.family.shared_sources(model.config)
        self._stored: dict[int, tuple[Floats, Floats]] = {}
        self.side_inputs: Floats | None = None
        size = len(tree.tokens) if stage.needs_whole_layers else CHUNK_ROWS
        self._chunks = [self._chunk(start, start + size) for start in range(0, len(tree.tokens), size)]

    def _chunk(self, start: int, stop: int) -> tuple[ChunkRows, ChunkRows, int]:
        """All rows of a chunk, those that the last layer goes on with, and how many of them somebody needs."""
        stop = min(stop, len(self.tree.tokens))
        kept = self.kept[(self.kept >= start) & (self.kept < stop)]
        whole = np.arange(start, stop, dtype=np.int32)
        going_on = kept if len(kept) else whole[:1]  # what a family does needs a row; later chunks need the keys
        return ChunkRows(self.tree, self.be, whole), ChunkRows(self.tree, self.be, going_on), len(kept)

    def run(self, cache: KVCache | None) -> Floats:
        """Run the layers; returns the residual stream of the kept rows, [kept, D]. Fills `cache` where given."""
        model, be = self.model, self.be
        x: Floats = model.family.embed(be, model.config, model.weights, self.tree.tokens, self.tree.positions)  # [R, D]
        self.side_inputs = model.family.side_inputs(be, model.config, model.weights, self.tree.tokens, x)
        self.check(x, np.arange(len(x), dtype=np.int32), NonFinite(0, "before_layer"))
        for layer in range(self.depth):
            x = self._layer(layer, x)
            rows = self.kept if layer == self.depth - 1 else np.arange(len(x), dtype=np.int32)
            self.check(x, rows, NonFinite(layer, "after_layer"))
            if cache is not None:
                self._fill(cache, layer)
        if not self.depth:
            x = x[self.kept]
        self._tap_input(x)
        return x

    def _layer(self, layer: int, x: Floats) -> Floats:
        last = layer == self.depth - 1
        out = np.empty((len(self.kept), x.shape[1]), x.dtype) if last else x
        done = 0
        for whole, going_on, needed in self._chunks:
            step = PrefillStep(self, layer, whole, going_on if last else whole)
            part = x[whole.rows[0] : whole.rows[-1] + 1]
            weights = self.model.weights.layers[layer]
            y = self.model.family.layer(self.be, self.model.config, weights, layer, part, step)
            target = out[done : done + needed] if last else part
            if y is not target:
                target[...] = y[: len(target)]
            done += len(target)
        return out

    def _tap_input(self, x: Floats) -> None:
        # a capture of before_layer in the first layer that is not run needs no layer
        if self.depth < self.model.card.n_layers and self.stage.wants("before_layer", self.depth):
            self.stage.show("before_layer", self.depth, x, self.tree.places(self.kept))

    def _fill(self, cache: KVCache, layer: int) -> None:
        if layer not in self._owners:
            return
        keys, values = self.stored(layer)
        for prompt in range(self.tree.n_prompts):
            path = self.tree.path(prompt)
            cache.store(layer, prompt, 0, keys[path], values[path])

    def _slot(self, layer: int) -> int:
        # layers that others share keep their rows to the end; all others take turns in one place
        return layer if layer in self._sources else NO_LAYER

    def stored(self, layer: int) -> tuple[Floats, Floats]:
        """Keys and values of a layer, [R + 1, K·E]: the current one, or one that others share."""
        return self._stored[self._slot(layer)]

    def store(self, layer: int, start: int, k: Floats, v: Floats) -> None:
        """Keep keys and values of rows from `start` on; one row of zeros follows the last."""
        slot, rows = self._slot(layer), len(self.tree.tokens) + 1
        kept = self._stored.get(slot)
        if kept is None or kept[0].shape != (rows, k.shape[1]) or kept[1].shape != (rows, v.shape[1]):
            kept = (np.zeros((rows, k.shape[1]), k.dtype), np.zeros((rows, v.shape[1]), v.dtype))
            self._stored[slot] = kept
        kept[0][start : start + len(k)] = k
        kept[1][start : start + len(v)] = v

    def check(self, x: Floats, rows: Index, at: NonFinite) -> None:
        """Note prompts with a value that is not finite and make their rows inert, so that others keep theirs."""
        flat = x.reshape(-1)
        if np.isfinite(np.dot(flat, flat)):
            return
        broken = rows[~np.isfinite(x).all(axis=1)]
        for path, prompt in enumerate(self.tree.bases.tolist()):
            if np.isin(self.tree.path(path), broken).any():
                self.failures.setdefault(prompt, at)
                self.stage.runners.pop(prompt, None)
        x[~np.isfinite(x).all(axis=1)] = 0


class PrefillStep:
    """A `Step` for one chunk of rows in one layer."""

    def __init__(self, run: Prefill, layer: int, whole: ChunkRows, kept: ChunkRows) -> None:
        self._run, self._layer, self._whole, self._kept = run, layer, whole, kept
        self._now = whole

    @property
    def positions(self) -> NDArray[np.int32]:
        """See `Step.positions`."""
        return self._now.positions

    @property
    def key_positions(self) -> NDArray[np.int32]:
        """See `Step.key_positions`."""
        return self._whole.positions

    def tap(self, site: str, a: Floats) -> None:
        """See `Step.tap`."""
        self._run.stage.show(site, self._layer, a, self._now.where)

    def prune(self, x: Floats, h: Floats) -> tuple[Floats, Floats]:
        """See `Step.prune`."""
        if len(self._kept.rows) == len(self._whole.rows):
            return x, h
        self._now = self._kept
        places = self._whole.where[self._kept.rows]
        return x[places], h[places]

    def store(self, k: Floats, v: Floats) -> None:
        """See `Step.store`."""
        self._run.store(self._layer, int(self._whole.rows[0]), k, v)

    def attend(
        self, q: Floats, heads: tuple[int, int], scale: float, window: int = 0, source: int | None = None
    ) -> Floats:
        """See `Step.attend`."""
        keys, values = self._run.stored(self._layer if source is None else source)
        for sink in self._run.stage.attention:
            if self._layer in sink.work.layers:
                sink.put(self._layer, q, keys, self._now.where, heads, scale, window)
        return self._run.be.attend(q, keys, values, self._now.attention(window), heads, scale)

    def side(self) -> Floats:
        """See `Step.side`."""
        assert self._run.side_inputs is not None, "the family has no side inputs"
        rows: Floats = self._run.side_inputs[self._now.rows, self._layer]
        return rows
