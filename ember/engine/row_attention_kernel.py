"""The kernels of `ember.engine.row_attention`: over the rows of a prefill, and over a cache."""

from typing import Any

import numpy as np

from ember.engine.kernels import softmax_in_place
from ember.engine.row_attention import dots, mix
from ember.numba_support import helper, kernel


@helper
def _score(
    q: Any, k: Any, path: Any, low: Any, high: Any, column: Any, size: Any, at: Any, n: Any, scores: Any
) -> None:
    """Products of n queries, at offsets at[0] … of q, with the keys path[low] … path[high - 1]."""
    stride, longest = k.shape[1], scores.shape[1]
    paired = low + (high - low) // 4 * 4
    for p in range(low, paired, 4):
        k0, k1 = path[p] * stride + column, path[p + 1] * stride + column
        k2, k3 = path[p + 2] * stride + column, path[p + 3] * stride + column
        if n == 4:
            dots(4, 4, k, k0, k1, k2, k3, q, at[0], at[1], at[2], at[3], size, scores, p - low, longest)
        else:
            for i in range(n):
                dots(4, 1, k, k0, k1, k2, k3, q, at[i], 0, 0, 0, size, scores, i * longest + p - low, longest)
    for p in range(paired, high):
        for i in range(n):
            key = path[p] * stride + column
            dots(1, 1, k, key, 0, 0, 0, q, at[i], 0, 0, 0, size, scores, i * longest + p - low, longest)


@helper
def _add(
    v: Any, path: Any, begin: Any, end: Any, column: Any, size: Any, scores: Any, first: Any, out: Any, to: Any
) -> None:
    """Add score · value of one query for path[begin] … path[end - 1]; its first score is scores.flat[first]."""
    stride, whole = v.shape[1], size // 64 * 64
    if begin < end:
        for e in range(0, whole, 64):
            mix(1, 4, v, column + e, stride, path, begin, end, scores, first, 0, 0, 0, out, to + e, 0, 0, 0)
        for e in range(whole, size, 16):
            mix(1, 1, v, column + e, stride, path, begin, end, scores, first, 0, 0, 0, out, to + e, 0, 0, 0)


@helper
def _add_four(
    v: Any, path: Any, begin: Any, end: Any, column: Any, size: Any, scores: Any, s: Any, out: Any, to: Any
) -> None:
    """The same for four queries at once."""
    stride, whole = v.shape[1], size // 64 * 64
    for e in range(0, whole, 64):
        mix(4, 4, v, column + e, stride, path, begin, end, scores, s[0], s[1], s[2], s[3],
            out, to[0] + e, to[1] + e, to[2] + e, to[3] + e)  # fmt: skip
    for e in range(whole, size, 16):
        mix(4, 1, v, column + e, stride, path, begin, end, scores, s[0], s[1], s[2], s[3],
            out, to[0] + e, to[1] + e, to[2] + e, to[3] + e)  # fmt: skip


@kernel(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], int32[::1], int64[::1], int32[::1], int32[::1],"
    " int64[::1], int64, int64, int64, float32, int64, int64, float32[:, ::1], float32[:, ::1])"
)
def attend_rows(
    q: Any,
    k: Any,
    v: Any,
    paths: Any,
    path_starts: Any,
    places: Any,
    positions: Any,
    query_starts: Any,
    window: Any,
    n_kv: Any,
    rep: Any,
    scale: Any,
    first_item: Any,
    end_item: Any,
    scores: Any,
    out: Any,
) -> None:
    """Attend: q [T, K·rep·E], k, v [R + 1, K·E] -> out [T, K·rep·V]; scores is scratch, [4, longest].

    Items count heads within prompts: those from `first_item` to `end_item` are done.
    """
    lanes, longest = np.empty(16, np.float32), scores.shape[1]
    key_size, value_size = k.shape[1] // n_kv, v.shape[1] // n_kv
    at, to, s = np.zeros(4, np.int64), np.zeros(4, np.int64), np.zeros(4, np.int64)
    for item in range(first_item, end_item):
        prompt, head = item // (n_kv * rep), item % (n_kv * rep)
        path = paths[path_starts[prompt] : path_starts[prompt + 1]]
        key, value = head // rep * key_size, head // rep * value_size
        for i in range(query_starts[prompt], query_starts[prompt + 1], 4):
            n = min(4, query_starts[prompt + 1] - i)
            low = 0 if window == 0 else max(0, positions[i] - window + 1)
            for j in range(n):
                at[j] = places[i + j] * q.shape[1] + head * key_size
                to[j] = places[i + j] * out.shape[1] + head * value_size
            _score(q, k, path, low, positions[i + n - 1] + 1, key, key_size, at, n, scores)
            # keys that all of them see lie between the last one's first key and the first one's own position
            common = low if window == 0 else max(0, positions[i + n - 1] - window + 1)
            end = positions[i] + 1
            for j in range(n):
                begin = 0 if window == 0 else max(0, positions[i + j] - window + 1)
                softmax_in_place(scores[j, begin - low : positions[i + j] + 1 - low], scale, lanes)
                out[places[i + j], head * value_size : (head + 1) * value_size] = np.float32(0)
                s[j] = j * longest + common - low
                if n < 4 or common >= end:
                    first = j * longest + begin - low
                    _add(v, path, begin, positions[i + j] + 1, value, value_size, scores, first, out, to[j])
                else:
                    _add(v, path, begin, common, value, value_size, scores, j * longest + begin - low, out, to[j])
            if n == 4 and common < end:
                _add_four(v, path, common, end, value, value_size, scores, s, out, to)
                for j in range(n):
                    first = j * longest + end - low
                    _add(v, path, end, positions[i + j] + 1, value, value_size, scores, first, out, to[j])


@kernel(
    "void(float32[:, ::1], float32[::1], float32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int32[::1], int64, int64, int64, int64, float32, float32[:, ::1], float32[:, ::1])"
)
def attend_cached(
    q: Any,
    keys: Any,
    values: Any,
    key_starts: Any,
    value_starts: Any,
    capacities: Any,
    begins: Any,
    ends: Any,
    ascending: Any,
    key_size: Any,
    value_size: Any,
    n_kv: Any,
    rep: Any,
    scale: Any,
    scores: Any,
    out: Any,
) -> None:
    """One query a sequence over its cache: q [S, K·rep·E] -> out [S, K·rep·V], the bits that a prefill would give.

    `ascending` counts from 0 to the longest history; scores is scratch, [1, longest].
    """
    lanes = np.empty(16, np.float32)
    for s in range(q.shape[0]):
        length = ends[s] - begins[s]
        for head in range(n_kv * rep):
            key = key_starts[s] + (head // rep * capacities[s] + begins[s]) * key_size
            value = value_starts[s] + (head // rep * capacities[s] + begins[s]) * value_size
            query = s * q.shape[1] + head * key_size
            for p in range(0, length - 3, 4):
                at = key + p * key_size
                dots(4, 1, keys, at, at + key_size, at + 2 * key_size, at + 3 * key_size,
                     q, query, 0, 0, 0, key_size, scores, p, 0)  # fmt: skip
            for p in range(length // 4 * 4, length):
                dots(1, 1, keys, key + p * key_size, 0, 0, 0, q, query, 0, 0, 0, key_size, scores, p, 0)
            softmax_in_place(scores[0, :length], scale, lanes)
            to = s * out.shape[1] + head * value_size
            out[s, head * value_size : (head + 1) * value_size] = np.float32(0)
            for e in range(0, value_size // 64 * 64, 64):
                mix(1, 4, values, value + e, value_size, ascending, 0, length, scores, 0, 0, 0, 0, out, to + e, 0, 0, 0)
            for e in range(value_size // 64 * 64, value_size, 16):
                mix(1, 1, values, value + e, value_size, ascending, 0, length, scores, 0, 0, 0, 0, out, to + e, 0, 0, 0)
