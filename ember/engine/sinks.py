"""Where captured rows go: one sink a capture, filled while layers run."""

import numpy as np
from numpy.typing import NDArray

from ember.units import PrefixTree
from ember.work import CaptureWork, Floats


class Sink:
    """Rows of one capture, [layers, rows, width]; pooled captures add up in float64, position after position."""

    def __init__(self, work: CaptureWork, tree: PrefixTree, width: int) -> None:
        self.work = work
        self._slot = {layer: slot for slot, layer in enumerate(work.layers)}
        chosen = [
            (tree.row_of(p, at), p, rank) for p, at_all in enumerate(work.positions) for rank, at in enumerate(at_all)
        ]
        self.rows: NDArray[np.int32] = np.array([row for row, _, _ in chosen], np.int32)
        """[chosen] tree rows in prompt order, then position order."""
        self._prompts = np.array([prompt for _, prompt, _ in chosen], np.int64)
        self._ranks = np.array([rank for _, _, rank in chosen], np.int64)
        dtype = np.float64 if work.pooled else np.float32
        self._out = np.zeros((len(work.layers), work.n_rows, width), dtype)

    def wants(self, site: str, layer: int) -> bool:
        """Whether this capture takes the tensor of `site` in `layer`."""
        return site == self.work.site and layer in self._slot

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
            out[self._prompts[now], columns] += a[places[now]]

    def result(self) -> Floats:
        """Return the rows as float32; for pooled captures, their means."""
        if self.work.pooled:
            counts = np.array([max(1, len(at)) for at in self.work.positions], np.float64)
            self._out /= counts[:, None]
        return self._out.astype(np.float32, copy=False)
