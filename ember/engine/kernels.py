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
def softmax_in_place(row: Any, scale: Any, lanes: Any) -> None:
    """Softmax of scale · row, in place; `lanes` is scratch for 16 values."""
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


@kernel("void(float32[:, ::1], float32[:, ::1], float32[::1], float32)")
def rms_norm(x: Any, out: Any, weight: Any, eps: Any) -> None:
    """out = x / sqrt(mean(x²) + eps) · weight: x, out [T, D], weight [D]."""
    lanes = np.empty(16, np.float32)
    for row in range(x.shape[0]):
        mean = _dot(x[row], x[row], lanes) / np.float32(x.shape[1])
        inverse = np.float32(1) / np.float32(math.sqrt(np.float32(mean + eps)))
        for i in range(x.shape[1]):
            out[row, i] = x[row, i] * inverse * weight[i]


@kernel("void(float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], float32)")
def layer_norm(x: Any, out: Any, weight: Any, bias: Any, eps: Any) -> None:
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
