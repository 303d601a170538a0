"""Decoding in lockstep: one token of every living sequence an evaluation; finished sequences leave.

Which kernels run is fixed by the route, never by how many sequences are alive.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ember.card import BoundModel
from ember.engine.backend import Backend
from ember.engine.cache import KVCache, Seen
from ember.engine.choosing import Choosing, Continuations
from ember.engine.head import Rows, Scan
from ember.engine.stage import Stage
from ember.sites import NO_LAYER
from ember.work import Floats, NonFinite


class DecodeStep:
    """A `Step` for one token of every living sequence."""

    def __init__(self, be: Backend, cache: KVCache, stage: Stage, alive: Rows, side: Floats | None) -> None:
        self._be, self._cache, self._stage, self._alive = be, cache, stage, alive
        self._slots: dict[int, NDArray[np.int64]] = {}  # by the kind of a layer's cache
        self._seen: dict[tuple[int, int], Seen] = {}  # by that and the window
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
        """See `Step.tap`."""
        self._stage.show_step(site, self.layer, a)

    def prune(self, x: Floats, h: Floats) -> tuple[Floats, Floats]:
        """See `Step.prune`; every row is needed."""
        return x, h

    def store(self, k: Floats, v: Floats) -> None:
        """See `Step.store`."""
        kind = self._cache.kind(self.layer)
        if kind not in self._slots:
            self._slots[kind] = self._cache.slots(self._alive, self.layer)
        self._cache.layer(self.layer).store(self._slots[kind], k, v)

    def attend(
        self, q: Floats, heads: tuple[int, int], scale: float, window: int = 0, source: int | None = None
    ) -> Floats:
        """See `Step.attend`."""
        layer = self.layer if source is None else source
        key = (self._cache.kind(layer), window)
        if key not in self._seen:
            self._seen[key] = self._cache.seen(layer, self._alive, window)
        return self._be.attend_cached(q, self._cache.layer(layer), self._seen[key], heads, scale)

    def side(self) -> Floats:
        """See `Step.side`."""
        assert self._side is not None, "the family has no side inputs"
        return np.ascontiguousarray(self._side[:, self.layer])


class Decode:
    """Continues the prompts of a unit, one token of every living sequence an evaluation."""

    def __init__(self, model: BoundModel, be: Backend, cache: KVCache, stage: Stage, choosing: Choosing) -> None:
        self._model, self._be, self._cache, self._stage, self._choosing = model, be.for_decode(), cache, stage, choosing
        self.failures: dict[int, NonFinite] = {}
        self._evaluations = 0

    def run(self, alive: Rows, chosen: Rows, continuations: Continuations) -> None:
        """Continue the sequences `alive` from the tokens `chosen` after their prompts."""
        # a prompt whose experiment failed goes on as inert rows: the others keep their company, and so their bits
        inert = self._stage.drop_failed()
        while True:
            going = [
                s in inert or continuations.take(s, token)
                for s, token in zip(alive.tolist(), chosen.tolist(), strict=True)
            ]
            self._complete(alive[~np.array(going, np.bool_)], continuations)
            alive, chosen = alive[going], chosen[going]
            if not set(alive.tolist()) - inert:
                return
            alive, chosen = self._evaluate(alive, chosen.astype(np.int32))
            inert |= self._stage.drop_failed() & set(alive.tolist())

    def _complete(self, ended: Rows, continuations: Continuations) -> None:
        for sequence in ended.tolist():
            self._stage.complete(sequence, continuations.count(sequence))

    def _evaluate(self, alive: Rows, tokens: NDArray[np.int32]) -> tuple[Rows, Rows]:
        """Feed one token to every living sequence; returns those that go on and their next tokens."""
        model, stage = self._model, self._stage
        stage.begin_step(self._evaluations, alive, self._cache.cursors[alive])
        self._evaluations += 1
        h = self._hidden(alive, tokens)  # [S, D]
        stage.show_step("before_logits", NO_LAYER, h)
        self._check(h, alive, NonFinite(NO_LAYER, "before_logits"))
        chooser = self._choosing.chooser(alive)
        scan = Scan(model, self._be, whole=stage.changes_logits or self._choosing.needs_whole_rows)
        everywhere = np.arange(len(alive))
        scan.add(everywhere, StepLogits(stage))
        scan.add(everywhere, chooser)
        scan.run(h)
        for sequence in alive[chooser.broken].tolist():
            self._fail(sequence, NonFinite(NO_LAYER, "after_logits"))
        whole = ~np.isin(alive, list(self.failures))
        return alive[whole], chooser.ids[whole]

    def _hidden(self, alive: Rows, tokens: NDArray[np.int32]) -> Floats:
        model, be = self._model, self._be
        positions = self._cache.cursors[alive].astype(np.int32)
        x = model.family.embed(be, model.config, model.weights, tokens, positions)  # [S, D]
        side = model.family.side_inputs(be, model.config, model.weights, tokens, x)
        step = DecodeStep(be, self._cache, self._stage, alive, side)
        for layer, weights in enumerate(model.weights.layers):
            step.layer = layer
            x = model.family.layer(be, model.config, weights, layer, x, step)
            self._check(x, alive, NonFinite(layer, "after_layer"))
        self._cache.advance(alive, 1)
        h: Floats = model.family.final_norm(be, model.config, model.weights, x)
        return h

    def _check(self, x: Floats, alive: Rows, at: NonFinite) -> None:
        flat = x.reshape(-1)
        if not math.isfinite(np.dot(flat, flat)):
            for sequence in alive[~np.isfinite(x).all(axis=1)].tolist():
                self._fail(sequence, at)

    def _fail(self, sequence: int, why: NonFinite) -> None:
        self.failures.setdefault(sequence, why)
        self._stage.runners.pop(sequence, None)


class StepLogits:
    """Shows the logits of generated tokens to the stage (see `ember.engine.head.Consumer`)."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def take(self, rows: Rows, start: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        columns = slice(start, start + scores.shape[1])
        self._stage.show_step("after_logits", NO_LAYER, scores, slice(int(rows[0]), int(rows[-1]) + 1), columns)
