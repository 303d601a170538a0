"""Kernels of the fast route: element-wise work in one pass over each row, reductions in 16 fixed lanes.

One inner loop per row and no branch on the row's company, so that a row's bits depend on its values only.
"""

import math
from typing import Any

import numpy as np

from ember.engine.intrinsics import exp32, fma
from ember.numba_support import helper, kernel


@helper
def _sum(x: Any, lanes: Any) -> Any:
    """Sum of a row, in 16 lanes that are added in order; the tail goes to the first lanes."""
    lanes[:] = np.float32(0)
    whole = x.size - x.size % 16
    for start in range(0, whole, 16):
        for lane in range(16):
            lanes[lane] += x[start + lane]
    for i in range(whole, x.size):
        lanes[i - whole] += x[i]
    total = np.float32(0)
    for lane in range(16):
        total += lanes[lane]
    return total


@helper
def _dot(x: Any, y: Any, lanes: Any) -> Any:
    """x·y in 16 lanes that are added in order; the tail goes to the first lanes."""
    lanes[:] = np.float32(0)
    whole = x.size - x.size % 16
    for start in range(0, whole, 16):
        for lane in range(16):
            lanes[lane] = fma(x[start + lane], y[start + lane], lanes[lane])
    for i in range(whole, x.size):
        lanes[i - whole] = fma(x[i], y[i], lanes[i - whole])
    total = np.float32(0)
    for lane in range(16):
        total += lanes[lane]
    return total


@helper
def _softmax_in_place(row: Any, scale: Any, lanes: Any) -> None:
    lanes[:] = np.float32(-np.inf)
    whole = row.size - row.size % 16
    for i in range(row.size):
        row[i] *= scale
    for start in range(0, whole, 16):
        for lane in range(16):
            lanes[lane] = max(lanes[lane], row[start + lane])
    for i in range(whole, row.size):
        lanes[i - whole] = max(lanes[i - whole], row[i])
    top = lanes[0]
    for lane in range(1, 16):
        top = max(top, lanes[lane])
    for i in range(row.size):
        row[i] = exp32(row[i] - top)
    total = _sum(row, lanes)
    for i in range(row.size):
        row[i] /= total


@kernel("void(float32[:, ::1], float32[::1], float32, float32[:, ::1])")
def rms_norm(x: Any, weight: Any, eps: Any, out: Any) -> None:
    """out = x / sqrt(mean(x²) + eps) · weight: x, out [T, D], weight [D]."""
    lanes = np.empty(16, np.float32)
    for row in range(x.shape[0]):
        mean = _dot(x[row], x[row], lanes) / np.float32(x.shape[1])
        inverse = np.float32(1) / np.float32(math.sqrt(np.float32(mean + eps)))
        for i in range(x.shape[1]):
            out[row, i] = x[row, i] * inverse * weight[i]


@kernel("void(float32[:, ::1], float32[::1], float32[::1], float32, float32[:, ::1])")
def layer_norm(x: Any, weight: Any, bias: Any, eps: Any, out: Any) -> None:
    """out = (x - mean) / sqrt(variance + eps) · weight + bias: x, out [T, D], weight and bias [D]."""
    lanes = np.empty(16, np.float32)
    for row in range(x.shape[0]):
        mean = _sum(x[row], lanes) / np.float32(x.shape[1])
        for i in range(x.shape[1]):
            out[row, i] = x[row, i] - mean
        variance = _dot(out[row], out[row], lanes) / np.float32(x.shape[1])
        inverse = np.float32(1) / np.float32(math.sqrt(np.float32(variance + eps)))
        for i in range(x.shape[1]):
            out[row, i] = fma(out[row, i] * inverse, weight[i], bias[i])


@kernel("void(float32[:, ::1], float32[::1])")
def add_bias(x: Any, bias: Any) -> None:
    """x += bias: x [T, N], bias [N]."""
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[row, i] += bias[i]


@helper
def _gelu(x: Any) -> Any:
    # 0.5·x·(1 + tanh(u)) = x / (1 + exp(-2u)), which loses no digits where tanh(u) is near -1
    u = np.float32(0.7978845608028654) * fma(np.float32(0.044715) * x * x, x, x)
    return x / (np.float32(1) + exp32(np.float32(-2) * u))


@kernel("void(float32[:, ::1])")
def gelu(x: Any) -> None:
    """GELU in its tanh form, in place: [T, F]."""
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[row, i] = _gelu(x[row, i])


@kernel("void(float32[:, ::1], float32[:, ::1])")
def gelu_mul(gate: Any, up: Any) -> None:
    """gate = gelu(gate) · up, the tanh form: [T, F]."""
    for row in range(gate.shape[0]):
        for i in range(gate.shape[1]):
            gate[row, i] = _gelu(gate[row, i]) * up[row, i]


@kernel("void(float32[:, ::1], float32[:, ::1])")
def add(x: Any, y: Any) -> None:
    """x += y: [T, D]."""
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[row, i] += y[row, i]


@kernel("void(float32[:, ::1], float32[:, ::1])")
def silu_mul(gate: Any, up: Any) -> None:
    """gate = silu(gate) · up: [T, F]."""
    for row in range(gate.shape[0]):
        for i in range(gate.shape[1]):
            g = gate[row, i]
            gate[row, i] = g / (np.float32(1) + exp32(-g)) * up[row, i]


@kernel("void(float32[:, ::1], int32[::1], float32[:, ::1], float32[:, ::1], int64)")
def rope_neighbours(x: Any, positions: Any, cos: Any, sin: Any, rotated: Any) -> None:
    """Turn pairs (2i, 2i+1) of every head in place: x [T, heads·E], tables [positions, E/2]."""
    half = rotated // 2
    for row in range(x.shape[0]):
        at = positions[row]
        for start in range(0, x.shape[1], rotated):
            for i in range(half):
                a, b = x[row, start + 2 * i], x[row, start + 2 * i + 1]
                x[row, start + 2 * i] = a * cos[at, i] - b * sin[at, i]
                x[row, start + 2 * i + 1] = a * sin[at, i] + b * cos[at, i]


@kernel("void(float32[:, ::1], int32[::1], float32[:, ::1], float32[:, ::1], int64)")
def rope_halves(x: Any, positions: Any, cos: Any, sin: Any, rotated: Any) -> None:
    """Turn pairs (i, i + E/2) of every head in place: x [T, heads·E], tables [positions, E/2]."""
    half = rotated // 2
    for row in range(x.shape[0]):
        at = positions[row]
        for start in range(0, x.shape[1], rotated):
            for i in range(half):
                a, b = x[row, start + i], x[row, start + half + i]
                x[row, start + i] = a * cos[at, i] - b * sin[at, i]
                x[row, start + half + i] = a * sin[at, i] + b * cos[at, i]


@kernel("void(float32[:, ::1], int32[:, ::1], int64, int64, float32[:, :, :, ::1])")
def gather_queries(q: Any, rows: Any, n_kv: Any, rep: Any, out: Any) -> None:
    """Tiles of queries: q [T, K·rep·E], rows [tiles, 32] -> out [tiles, K, rep·32, E]; row -1 gives zeros."""
    size = out.shape[3]
    block = rows.shape[1]
    for tile in range(rows.shape[0]):
        for g in range(n_kv):
            for r in range(rep):
                start = (g * rep + r) * size
                for i in range(block):
                    row = rows[tile, i]
                    if row < 0:
                        out[tile, g, r * block + i, :] = np.float32(0)
                    else:
                        for e in range(size):
                            out[tile, g, r * block + i, e] = q[row, start + e]


@kernel("void(float32[:, ::1], int32[:, ::1], float32[:, :, :, ::1])")
def gather_keys(k: Any, rows: Any, out: Any) -> None:
    """Tiles of keys or values: k [R + 1, K·E], rows [tiles, keys] -> out [tiles, K, keys, E]."""
    size = out.shape[3]
    for tile in range(rows.shape[0]):
        for g in range(out.shape[1]):
            for i in range(rows.shape[1]):
                row = rows[tile, i]
                for e in range(size):
                    out[tile, g, i, e] = k[row, g * size + e]


@kernel("void(float32[:, :, :, ::1], int32[:, ::1], int64, int64, int64, float32)")
def masked_softmax(scores: Any, rows: Any, first_query: Any, first_key: Any, window: Any, scale: Any) -> None:
    """Softmax over the visible keys of every query, in place: scores [tiles, K, rep·32, keys].

    Lines whose query is absent (row -1) are left as they are: nobody reads them.
    """
    block = rows.shape[1]
    lanes = np.empty(16, np.float32)
    for tile in range(scores.shape[0]):
        for g in range(scores.shape[1]):
            for line in range(scores.shape[2]):
                if rows[tile, line % block] < 0:
                    continue
                position = first_query + line % block
                begin = 0
                if window > 0:
                    begin = max(0, position - window + 1 - first_key)
                end = position + 1 - first_key
                row = scores[tile, g, line]
                row[:begin] = np.float32(0)
                row[end:] = np.float32(0)
                _softmax_in_place(row[begin:end], scale, lanes)


@kernel("void(float32[:, :, :, ::1], int32[:, ::1], int64, float32[:, ::1])")
def scatter(mixed: Any, rows: Any, rep: Any, out: Any) -> None:
    """Bring tiles [tiles, K, rep·32, E] back to rows of out [T, K·rep·E]; row -1 is dropped."""
    size = mixed.shape[3]
    block = rows.shape[1]
    for tile in range(rows.shape[0]):
        for i in range(block):
            row = rows[tile, i]
            if row < 0:
                continue
            for g in range(mixed.shape[1]):
                for r in range(rep):
                    for e in range(size):
                        out[row, (g * rep + r) * size + e] = mixed[tile, g, r * block + i, e]


@kernel(
    "void(float32[:, ::1], float32[::1], float32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64, int64, float32, float32[::1], float32[:, ::1])"
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
    n_kv: Any,
    rep: Any,
    scale: Any,
    scores: Any,
    out: Any,
) -> None:
    """One query a sequence over its cache: q [S, K·rep·E], out [S, K·rep·V]; keys in ascending order."""
    lanes = np.empty(16, np.float32)
    key_size = q.shape[1] // (n_kv * rep)
    value_size = out.shape[1] // (n_kv * rep)
    for s in range(q.shape[0]):
        for head in range(n_kv * rep):
            begin = begins[s]
            length = ends[s] - begin
            first_key = key_starts[s] + ((head // rep) * capacities[s] + begin) * key_size
            first_value = value_starts[s] + ((head // rep) * capacities[s] + begin) * value_size
            query = q[s, head * key_size : (head + 1) * key_size]
            row = scores[:length]
            for p in range(length):
                at = first_key + p * key_size
                row[p] = _dot(query, keys[at : at + key_size], lanes)
            _softmax_in_place(row, scale, lanes)
            mixed = out[s, head * value_size : (head + 1) * value_size]
            mixed[:] = np.float32(0)
            for p in range(length):
                at = first_value + p * value_size
                weight = row[p]
                for e in range(value_size):
                    mixed[e] = fma(weight, values[at + e], mixed[e])
