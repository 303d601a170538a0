"""How long a run will take: an estimate from the plan's rows and this machine's matrix multiply, measured now.

An estimate, for deciding whether to wait: it knows nothing of other load, start-up, or slow disks.
"""

import math
import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from ember.gguf import TensorInfo
from pipelines.plan import Plan

SIZE: Final = 768
"""Side of the matrices that are multiplied: large enough for the peak, done in milliseconds."""
REPEATS: Final = 5
EFFICIENCY: Final = 0.8
"""Share of the multiply's speed that a prefill reached (docs/benchmarks.md, one thread)."""
DECODE_EFFICIENCY: Final = 0.45
"""The same while many prompts are continued in lockstep, with weights left packed."""
BYTES_PER_SECOND: Final = 15e9
"""Packed weights that one core reads while few prompts are continued: then memory decides, not arithmetic."""
STARTUP_SECONDS: Final = 6.0
"""Starting a cluster, opening the model and the last hashes; configs/roots.yaml on a quiet machine."""


@dataclass(frozen=True, slots=True)
class Duration:
    """An estimate and what it rests on."""

    seconds: float
    flops_per_second: float
    """Of one worker, measured."""
    prefill_seconds: float
    decode_seconds: float


def estimate_duration(plan: Plan, workers: int) -> Duration:
    """Estimate the run's wall time with `workers` workers on this machine."""
    threads = plan.config.engine.blas_threads
    speed = multiply_speed(threads)
    layers, head = _elements(plan)
    needs_head = (len(plan.samples) if plan.max_tokens or plan.scores_anything else 0) + len(plan.scores.tokens)
    rows = plan.rows_shared + plan.rows_scored
    prefill = 2.0 * (rows * layers + needs_head * head) / (speed * EFFICIENCY)
    steps = len(plan.units) * plan.max_tokens
    tokens = len(plan.samples) * plan.max_tokens
    reading = steps * _stored_bytes(plan) / (BYTES_PER_SECOND * math.sqrt(threads))
    decode = max(reading, 2.0 * tokens * (layers + head) / (speed * DECODE_EFFICIENCY))
    shared = max(1, min(workers, len(plan.units)))
    return Duration(STARTUP_SECONDS + (prefill + decode) / shared, speed, prefill / shared, decode / shared)


def multiply_speed(threads: int) -> float:
    """Float32 operations per second of this machine's matrix multiply with `threads` threads."""
    x = np.ones((SIZE, SIZE), np.float32)
    out = np.empty_like(x)
    best = math.inf
    with threadpool_limits(threads, user_api="blas"):
        for _ in range(REPEATS):
            started = time.perf_counter()
            np.matmul(x, x.T, out=out)
            best = min(best, time.perf_counter() - started)
    return 2.0 * SIZE**3 / best


def in_words(seconds: float) -> str:
    """Say a duration as people do."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def _elements(plan: Plan) -> tuple[int, int]:
    """Weights that every row meets, and weights of the head."""
    layers, head = _matrices(plan)
    return sum(map(_count, layers)), _count(head)


def _stored_bytes(plan: Plan) -> int:
    """Bytes of the same, as the file holds them."""
    layers, head = _matrices(plan)
    return sum(info.nbytes for info in (*layers, head))


def _matrices(plan: Plan) -> tuple[list[TensorInfo], TensorInfo]:
    tensors = plan.source.file.tensors
    layers = [info for name, info in tensors.items() if name.startswith("blk.") and len(info.shape) == 2]
    return layers, tensors.get("output.weight") or tensors["token_embd.weight"]


def _count(info: TensorInfo) -> int:
    return math.prod(info.shape)
