"""What a run will take before it starts: bytes on disk, private memory of a worker."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from ember.sites import SITES
from pipelines.errors import RunError
from pipelines.plan import Plan, PlannedUnit

FLOAT: Final = 4
ROW_INDEX: Final = 48
"""Bytes that the index columns of a row take at most, compressed."""
GENERATED_ROW: Final = 200
"""Bytes of a generated row without its tokens and text."""
PROCESS_BYTES: Final = 190_000_000
"""Private memory of a worker with its libraries and no model."""
HIDDEN_COPIES: Final = 8
"""Hidden-wide float32 rows the engine holds per token row at its widest point."""
FFN_COPIES: Final = 2
"""FFN-wide float32 rows per token row."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Private memory of one worker, in bytes; the mapped model is shared and comes on top once per machine."""

    process: int
    weights: int
    """Scratch that one decoded layer, or the head, takes."""
    rows: int
    """Working rows of the largest unit."""
    captures: int
    """Captured rows of the largest unit, twice: as the engine gives them and as they are written."""
    cache: int
    """Keys and values of the largest unit, when something is generated."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.process + self.weights + self.rows + self.captures + self.cache


def table_bytes(plan: Plan) -> dict[str, int]:
    """Bytes of every output table, an upper estimate: float32 as it is, before compression."""
    found: dict[str, int] = {"stimuli": sum(_stimulus_bytes(sample) for sample in plan.samples)}
    for capture in plan.captures:
        table = "logits" if capture.site == "after_logits" else "activations"
        row = _width(plan, capture.site) * FLOAT + ROW_INDEX
        found[table] = found.get(table, 0) + capture.n_rows * len(capture.layers) * row
    if plan.max_tokens:
        found["generations"] = len(plan.samples) * (GENERATED_ROW + 12 * plan.max_tokens)
    return found


def worker_memory(plan: Plan) -> Memory:
    """Private memory that a worker needs for the largest unit, weights streamed."""
    card = plan.source.card
    widest = max(plan.units, key=lambda unit: unit.rows_shared)
    ffn = int(card.hyperparameters.get("feed_forward_length", 4 * card.hidden_size))
    return Memory(
        process=PROCESS_BYTES,
        weights=_largest_layer(plan),
        rows=widest.rows_shared * FLOAT * (HIDDEN_COPIES * card.hidden_size + FFN_COPIES * ffn),
        captures=2 * max(_captured(plan, unit) for unit in plan.units),
        cache=max(_cached(plan, unit) for unit in plan.units) if plan.max_tokens else 0,
    )


def check_disk(run_dir: Path, needed: int) -> None:
    """Raise RunError if less than `needed` bytes are free where `run_dir` lies."""
    place = next(path for path in (run_dir, *run_dir.absolute().parents) if path.is_dir())
    free = psutil.disk_usage(str(place)).free
    if needed > free:
        raise RunError(
            f"the run will write up to {size(needed)} to {run_dir}, where {size(free)} are free; "
            "free some space, choose another output.dir, or capture less (fewer layers or positions)"
        )


def size(n: int) -> str:
    """Bytes as a person reads them."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= factor:
            return f"{n / factor:.1f} {unit}"
    return f"{n} bytes"


def _width(plan: Plan, site: str) -> int:
    card = plan.source.card
    return card.vocab_size if SITES[site].width == "vocab" else card.hidden_size


def _stimulus_bytes(sample: Any) -> int:
    text = len(sample.stimulus.prompt.encode()) + len((sample.stimulus.expected or "").encode())
    return text + 12 * len(sample.tokens) + 250


def _captured(plan: Plan, unit: PlannedUnit) -> int:
    total = 0
    for capture in plan.captures:
        places = capture.positions[unit.start : unit.end]
        rows = len(places) if capture.pooled else sum(map(len, places))
        total += rows * len(capture.layers) * _width(plan, capture.site) * FLOAT
    return total


def _cached(plan: Plan, unit: PlannedUnit) -> int:
    card = plan.source.card
    heads = int(card.hyperparameters.get("attention.head_count", 1))
    kv_heads = int(card.hyperparameters.get("attention.head_count_kv", heads))
    positions = unit.rows + (unit.end - unit.start) * plan.max_tokens
    return 2 * FLOAT * card.n_layers * positions * card.hidden_size * kv_heads // heads


def _largest_layer(plan: Plan) -> int:
    """Float32 bytes of the block with the most weights."""
    blocks: dict[str, int] = {}
    for name, tensor in plan.source.file.tensors.items():
        if name.startswith("blk."):
            block, count = ".".join(name.split(".")[:2]), 1
            for dimension in tensor.shape:
                count *= dimension
            blocks[block] = blocks.get(block, 0) + count * FLOAT
    return max(blocks.values(), default=0)
