"""Interventions: operations on rows of a site's tensor, in the order of the plan. Rows never mix."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ember.engine.sinks import Sink
from ember.units import PrefixTree
from ember.work import ALL_STEPS, Floats, InterventionWork


def apply(work: InterventionWork, x: Floats, v: Floats) -> Floats:
    """Return what becomes of rows x [n, width] under source rows v of the same shape (see `InterventionWork`)."""
    s = x.dtype.type(work.strength)
    if work.operation == "zero":
        return np.zeros_like(x)
    if work.operation == "scale":
        return s * x
    if work.operation == "add":
        return x + s * v
    if work.operation == "replace":
        return v
    if work.operation == "interpolate":
        return (x.dtype.type(1) - s) * x + s * v
    return x - s * _along(x, v)


def _along(x: Floats, v: Floats) -> Floats:
    # in float64 and row by row: the order of the sum does not depend on the other rows
    wide, direction = x.astype(np.float64), v.astype(np.float64)
    square = (direction * direction).sum(axis=1, keepdims=True)
    dot = (wide * direction).sum(axis=1, keepdims=True)
    part: Floats = (np.divide(dot, square, out=np.zeros_like(dot), where=square > 0) * direction).astype(x.dtype)
    return part


class Operation:
    """One intervention, ready to act while layers run."""

    def __init__(self, work: InterventionWork, tree: PrefixTree, sinks: Sequence[Sink | None]) -> None:
        self.work = work
        self._slot = {layer: slot for slot, layer in enumerate(work.layers)}
        chosen = [(tree.row_of(p, at), p) for p, at_all in enumerate(work.positions) for at in at_all]
        self._rows = np.array([row for row, _ in chosen], np.int32)
        self._capture = None if work.capture is None else sinks[work.capture]
        self._lines = np.empty(0, np.int64) if self._capture is None else _lines(work, self._capture)

    def act(self, layer: int, a: Floats, where: NDArray[np.int32]) -> None:
        """Change rows of `a`; `where` gives each tree row's place in `a`, or -1."""
        places = where[self._rows]
        here = np.flatnonzero(places >= 0)
        if len(here):
            rows = a[places[here]]
            a[places[here]] = apply(self.work, rows, self._source(layer, here, rows))

    def act_on_step(self, layer: int, a: Floats, sequences: NDArray[np.int64], step: int) -> None:
        """Change the lines of `a`, one a sequence, whose step the plan names."""
        steps = self.work.steps
        mine = [i for i, s in enumerate(sequences.tolist()) if steps and ({step, ALL_STEPS} & {*steps[s]})]
        if mine:
            rows = a[mine]
            a[mine] = apply(self.work, rows, self._vector(layer, rows))

    def _vector(self, layer: int, rows: Floats) -> Floats:
        vector = self.work.vector
        if vector is None:
            return rows
        return np.broadcast_to(vector if vector.ndim == 1 else vector[self._slot[layer]], rows.shape)

    def _source(self, layer: int, here: NDArray[np.int64], rows: Floats) -> Floats:
        if self._capture is not None:
            source = layer if self.work.capture_layer is None else self.work.capture_layer
            return self._capture.rows_at(source)[self._lines[here]]
        if self.work.rows is not None:
            given: Floats = self.work.rows[self._slot[layer], here]
            return given
        return self._vector(layer, rows)


def _lines(work: InterventionWork, capture: Sink) -> NDArray[np.int64]:
    """For each position acted on, the capture's row that serves as its source."""
    lines, first = [], 0
    for acted, taken in zip(work.positions, capture.work.positions, strict=True):
        count = min(1, len(taken)) if capture.work.pooled else len(taken)
        lines += [first + (rank if count > 1 else 0) for rank in range(len(acted))]
        first += count
    return np.array(lines, np.int64)
