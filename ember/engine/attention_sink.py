"""Attention weights of chosen query positions, computed beside the run from the queries and keys it used."""

import numpy as np
from numpy.typing import NDArray

from ember.units import PrefixTree
from ember.work import AttentionWork, Floats


class AttentionSink:
    """Weights of one request: for every row [layers, H, position + 1]."""

    def __init__(self, work: AttentionWork, tree: PrefixTree) -> None:
        self._slot = {layer: slot for slot, layer in enumerate(work.layers)}
        self._places = [(p, at) for p, at_all in enumerate(work.positions) for at in at_all]
        self._tree = tree
        self.work = work
        self.rows = np.array([tree.row_of(p, at) for p, at in self._places], np.int32)
        """[chosen] tree rows in prompt order, then position order."""
        self._out: list[Floats] = []

    def put(
        self,
        layer: int,
        q: Floats,
        keys: Floats,
        where: NDArray[np.int32],
        heads: tuple[int, int],
        scale: float,
        window: int,
    ) -> None:
        """Take the weights of rows that are in q [T, H·E], at `where`; keys are those of all rows, [R + 1, K·E]."""
        if not self._out:
            self._out = [np.zeros((len(self._slot), heads[0], at + 1), np.float32) for _, at in self._places]
        for out, row, (prompt, at) in zip(self._out, self.rows.tolist(), self._places, strict=True):
            if where[row] >= 0:
                first = max(0, at - window + 1) if window else 0
                path = self._tree.path(prompt)[first : at + 1]
                out[self._slot[layer], :, first:] = _weights(q[where[row]], keys[path], heads, scale)

    def result(self) -> list[Floats]:
        """One array a row, [layers, H, position + 1]."""
        return self._out


def _weights(query: Floats, keys: Floats, heads: tuple[int, int], scale: float) -> NDArray[np.float64]:
    n_heads, n_kv = heads
    q = query.astype(np.float64).reshape(n_kv, n_heads // n_kv, -1)  # [K, H/K, E]
    k = keys.astype(np.float64).reshape(len(keys), n_kv, -1)  # [P, K, E]
    scores = np.einsum("gre,pge->grp", q, k).reshape(n_heads, -1) * scale  # [H, P]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return result
