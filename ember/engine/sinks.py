"""Where captured rows go: one sink a capture, filled while layers run."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from ember.units import PrefixTree
from ember.work import ALL_STEPS, CaptureWork, Floats


class Sink:
    """Rows of one capture, [layers, rows, width]; pooled captures add up in float64, position after position."""

    def __init__(self, work: CaptureWork, tree: PrefixTree, width: int) -> None:
        self.work = work
        self._slot = {layer: slot for slot, layer in enumerate(work.layers)}
        asked = [prompt for prompt, at_all in enumerate(work.positions) if at_all]
        chosen = [(tree.row_of(p, at), p, rank) for p in asked for rank, at in enumerate(work.positions[p])]
        self.rows: NDArray[np.int32] = np.array([row for row, _, _ in chosen], np.int32)
        """[chosen] tree rows in prompt order, then position order."""
        line = {prompt: place for place, prompt in enumerate(asked)}
        self._lines = np.array([line[prompt] for _, prompt, _ in chosen], np.int64)
        self._ranks = np.array([rank for _, _, rank in chosen], np.int64)
        self._counts = np.array([len(work.positions[prompt]) for prompt in asked], np.float64)
        dtype = np.float64 if work.pooled else np.float32
        self._out = np.zeros((len(work.layers), work.n_rows, width), dtype)

    def put(self, layer: int, a: Floats, where: NDArray[np.int32], columns: slice = slice(None)) -> None:
        """Take rows out of `a`; `where` gives each tree row's place in `a`, or -1."""
        places = where[self.rows]
        here = places >= 0
        out = self._out[self._slot[layer]]
        if not self.work.pooled:
            out[here, columns] = a[places[here]]
            return
        for rank in range(int(self._ranks.max(initial=-1)) + 1):
            now = here & (self._ranks == rank)
            out[self._lines[now], columns] += a[places[now]]

    def rows_at(self, layer: int) -> Floats:
        """Rows of one layer as they stand, [rows, width]: complete once the site has fired."""
        rows: Floats = self._out[self._slot[layer]]
        return (rows / self._counts[:, None]).astype(np.float32, copy=False) if self.work.pooled else rows

    def result(self) -> Floats:
        """Return the rows as float32; for pooled captures, their means."""
        if self.work.pooled:
            self._out /= self._counts[:, None]
        return self._out.astype(np.float32, copy=False)


class StepSink:
    """Rows of a capture of generated steps; how many there are shows when generation has ended."""

    def __init__(self, work: CaptureWork, prompts: int, width: int) -> None:
        self.work = work
        self._slot = {layer: slot for slot, layer in enumerate(work.layers)}
        self._on = np.array(work.on_steps or (True,) * prompts, np.bool_)
        self._width = width
        self._steps: list[tuple[NDArray[np.int64], Floats]] = []
        self._places: NDArray[np.int64] = np.empty(0, np.int64)

    def begin(self, step: int, alive: NDArray[np.int64]) -> None:
        """Make room for one evaluation of the sequences `alive`."""
        wanted = self.work.step in (ALL_STEPS, step)
        self._places = np.flatnonzero(self._on[alive]) if wanted else np.empty(0, np.int64)
        if len(self._places):
            room = np.empty((len(self.work.layers), len(self._places), self._width), np.float32)
            self._steps.append((alive[self._places], room))

    def put(self, layer: int, a: Floats, rows: slice, columns: slice = slice(None)) -> None:
        """Take rows out of `a`, whose lines are those of the sequences alive, or of `rows` among them."""
        mine = (self._places >= rows.start) & (self._places < rows.stop)
        if mine.any():
            self._steps[-1][1][self._slot[layer], mine, columns] = a[self._places[mine] - rows.start]

    def result(self, failed: Collection[int]) -> Floats:
        """[layers, rows, width] in prompt order, then step order, without the prompts that failed."""
        empty = np.empty((len(self.work.layers), 0, self._width), np.float32)
        prompts = np.concatenate([np.empty(0, np.int64), *(prompts for prompts, _ in self._steps)])
        rows = np.concatenate([empty, *(rows for _, rows in self._steps)], axis=1)
        order = np.argsort(prompts, kind="stable")
        return np.ascontiguousarray(rows[:, order[~np.isin(prompts[order], list(failed))]])
