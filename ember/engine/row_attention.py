"""Attention of the fast route: every query row by itself, over the keys of its own history.

Scores are products by the definition of `ember.engine.vectors`; a softmax sums over exactly the keys that its query
sees; values are added in ascending order of their positions. So a row's bits depend on its history alone: not on the
prompt's length, its neighbours, what they share, nor on any BLAS. Four queries and four keys are worked on together
because that is fast; it changes no bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.engine import vectors as v
from ember.engine.block_loaders import F32
from ember.engine.packed_kernels import loop_over_blocks
from ember.numba_support import HAVE_NUMBA, literal_intrinsic
from ember.units import PrefixTree

if HAVE_NUMBA:
    from numba.core import types

Index = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Which query rows meet which key rows: the wanted rows of every prompt that owns some."""

    paths: Index
    """Key rows of each prompt, position after position, prompt after prompt."""
    path_starts: NDArray[np.int64]
    places: Index
    """Place of each query row in q, ascending in position within its prompt."""
    positions: Index
    """Absolute position of each query row."""
    query_starts: NDArray[np.int64]
    """[prompts + 1] where each prompt's query rows start in `places`."""
    window: int
    longest: int
    """Positions of the longest prompt."""
    pairs: int
    """Queries times the keys that each sees."""


def plan_rows(tree: PrefixTree, wanted: Index, window: int = 0) -> RowPlan:
    """Arrange the rows `wanted` (ascending rows of the tree); q has one row for each, in that order."""
    place = tree.places(wanted)
    owners = np.unique(tree.owners[wanted]).tolist()
    paths = [tree.path(prompt) for prompt in owners]
    # a shared row is computed with its first owner only
    mine = [
        path[(tree.owners[path] == prompt) & (place[path] >= 0)] for prompt, path in zip(owners, paths, strict=True)
    ]
    rows = np.concatenate([np.empty(0, np.int32), *mine])
    return RowPlan(
        np.concatenate([np.empty(0, np.int32), *paths]),
        _starts(paths),
        place[rows],
        tree.positions[rows],
        _starts(mine),
        window,
        max(map(len, paths), default=0),
        int(np.minimum(tree.positions[rows].astype(np.int64) + 1, window or len(tree.tokens)).sum()),
    )


def _starts(parts: Sequence[Index]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


def _dots(context: Any, n_keys: Any, n_queries: Any, k: Any, k0: Any, k1: Any, k2: Any, k3: Any,
          q: Any, q0: Any, q1: Any, q2: Any, q3: Any,
          width: Any, out: Any, first: Any, stride: Any) -> Any:  # fmt: skip
    """Multiply up to four keys, at offsets k0 … in k, by up to four queries: out[first + query·stride + key]."""
    keys, queries, whole = n_keys.literal_value, n_queries.literal_value, types.int64
    signature = types.void(n_keys, n_queries, k, *[whole] * 4, q, *[whole] * 4, whole, out, whole, whole)

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data = [context.make_array(signature.args[i])(context, b, args[i]).data for i in (2, 7, 13)]
        blocks = [b.bitcast(v.at(b, data[0], args[3 + n]), v.BYTE.as_pointer()) for n in range(keys)]
        lines = [v.at(b, data[1], args[8 + n]) for n in range(queries)]
        sums = loop_over_blocks(b, F32(), blocks, lines, args[12])
        for line in range(queries):
            for key in range(keys):
                place = b.add(args[14], b.add(b.mul(args[15], v.size(line)), v.size(key)))
                b.store(v.total(b, sums[key][line]), v.at(b, data[2], place))
        return context.get_dummy_value()

    return signature, codegen


def _mix(context: Any, n_queries: Any, n_vectors: Any, values: Any, base: Any, stride: Any, path: Any, begin: Any,
         end: Any, scores: Any, s0: Any, s1: Any, s2: Any, s3: Any,
         out: Any, o0: Any, o1: Any, o2: Any, o3: Any) -> Any:  # fmt: skip
    """Add score · value row for path[begin] … path[end - 1] to up to four rows of out, 16·n_vectors columns of each.

    Row i of out begins at o_i, its scores at s_i; a value row r begins at base + r·stride.
    """
    queries, parts, whole = n_queries.literal_value, n_vectors.literal_value, types.int64
    signature = types.void(
        n_queries, n_vectors, values, whole, whole, path, whole, whole, scores, *[whole] * 4, out, *[whole] * 4
    )

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data = [context.make_array(signature.args[i])(context, b, args[i]).data for i in (2, 5, 8, 13)]
        targets = [v.at(b, data[3], args[14 + n]) for n in range(queries)]
        old = [[v.load(b, target, v.size(16 * part), v.VECTOR) for part in range(parts)] for target in targets]
        entry, loop, done = b.basic_block, b.append_basic_block("keys"), b.append_basic_block("done")
        b.branch(loop)
        b.position_at_end(loop)
        n = b.phi(v.SIZE)
        n.add_incoming(args[6], entry)
        sums = [[b.phi(v.VECTOR) for _ in range(parts)] for _ in targets]
        row = b.sext(v.load(b, data[1], n, v.WORD), v.SIZE)
        line = v.at(b, data[0], b.add(args[3], b.mul(row, args[4])))
        vectors = [v.load(b, line, v.size(16 * part), v.VECTOR) for part in range(parts)]
        step = b.sub(n, args[6])
        following = b.add(n, v.size(1))
        n.add_incoming(following, loop)
        for query in range(queries):
            weight = v.splat(b, v.load(b, data[2], b.add(args[9 + query], step), v.REAL))
            for part in range(parts):
                new = v.fma(b, weight, vectors[part], sums[query][part])
                sums[query][part].add_incoming(old[query][part], entry)
                sums[query][part].add_incoming(new, loop)
                old[query][part] = new
        b.cbranch(b.icmp_signed("<", following, args[7]), loop, done)
        b.position_at_end(done)
        for query, target in enumerate(targets):
            for part in range(parts):
                place = b.bitcast(v.at(b, target, v.size(16 * part)), v.VECTOR.as_pointer())
                b.store(old[query][part], place).align = 4
        return context.get_dummy_value()

    return signature, codegen


dots: Any = literal_intrinsic(_dots)
mix: Any = literal_intrinsic(_mix)
