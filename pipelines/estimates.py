"""What a run will take before it starts: bytes on disk, private memory of a worker."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from ember.sites import SITES
from pipelines.errors import RunError
from pipelines.plan import Plan, PlannedUnit

FLOAT: Final = 4
PART: Final = 6_000
"""Bytes of a part file beside its rows: schema, metadata, footer."""
ROW_GROUP: Final = 1_600
"""Bytes of a row group beside its rows: page headers, indices and its share of the footer; measured."""
ROW_INDEX: Final = 48
"""Bytes that the index columns of a row take at most, compressed."""
GENERATED_ROW: Final = 200
"""Bytes of a generated row without its tokens and text."""
SCORED_ROW: Final = 80
"""Bytes of the score columns of a row without lists."""
SCORED_TEXT, SCORED_TOKEN = 20, 16
"""Bytes that a scored text, and each of its tokens, takes at most."""
PROCESS_BYTES: Final = 125_000_000
"""Private memory of a worker with its libraries and an open model, before its first unit; measured."""
SLICE_BYTES: Final = 64 << 20
"""Decoded weights that the engine holds at a time, at most (`ember.engine.weights`)."""
HEAD_SLICE_BYTES: Final = 16 << 20
HEAD_ROWS: Final = 1024
WHOLE_BYTES: Final = 32 << 20
"""Rows of logits that the engine holds whole at a time, at most (`ember.engine.head`)."""
CHUNK_ROWS: Final = 4096
"""Rows that go through a layer together, at most (`ember.engine.prefill`)."""
HIDDEN_COPIES: Final = 12
"""Hidden-wide float32 rows per token row in a layer: norms, queries, keys, values, attention and its tiles."""
WRITING: Final = 1.3
"""Memory of captured rows over their bare size, while one layer after another is written; measured."""
FFN_COPIES: Final = 2
"""FFN-wide float32 rows per token row in a layer: gate and up."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Private memory of one worker, in bytes; the mapped model is shared and comes on top once per machine."""

    process: int
    weights: int
    """Decoded weights, one slice at a time, and what comes out of a slice of the head."""
    rows: int
    """Working rows of the largest unit."""
    captures: int
    """Captured rows of the largest unit, and those of the one before it, with what writing them takes."""
    cache: int
    """Keys and values of the largest unit, when something is generated."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.process + self.weights + self.rows + self.captures + self.cache


def table_bytes(plan: Plan) -> dict[str, int]:
    """Bytes of every output table, an upper estimate: float32 as it is, before compression."""
    units = len(plan.units)
    found: dict[str, int] = {"stimuli": PART + sum(_stimulus_bytes(sample) for sample in plan.samples)}
    for capture in plan.captures:
        table = "logits" if capture.site == "after_logits" else "activations"
        row = _width(plan, capture.site) * FLOAT + ROW_INDEX
        groups = units * len(capture.layers) * ROW_GROUP
        found[table] = found.get(table, units * PART) + capture.n_rows * len(capture.layers) * row + groups
    if plan.max_tokens or plan.scores_anything:
        row = GENERATED_ROW + 12 * plan.max_tokens + (SCORED_ROW + 12 * plan.top_k if plan.scores_anything else 0)
        scored = SCORED_TOKEN * len(plan.scores.tokens) + SCORED_TEXT * len(plan.scores.merged)
        texts = sum(len(text.encode()) for choices in plan.scores.choices for text in choices)
        found["generations"] = units * PART + len(plan.samples) * row + scored + texts
    if plan.hooks.attention:
        found["attention"] = units * PART + _attention_bytes(plan, 0, len(plan.samples))
    return found


def worker_memory(plan: Plan) -> Memory:
    """Private memory that a worker needs for the largest unit, weights streamed."""
    card = plan.source.card
    rows = max(unit.rows_shared + unit.rows_scored for unit in plan.units)
    ffn = _hyperparameter(plan, "feed_forward_length", 4 * card.hidden_size)
    working = min(rows, CHUNK_ROWS) * (HIDDEN_COPIES * card.hidden_size + FFN_COPIES * ffn) + rows * card.hidden_size
    return Memory(
        process=PROCESS_BYTES,
        weights=_decoded(plan) + _head(plan),
        rows=working * FLOAT,
        captures=round((WRITING + (len(plan.units) > 1)) * max(_captured(plan, unit) for unit in plan.units)),
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
        total += capture.rows_of(unit.start, unit.end) * len(capture.layers) * _width(plan, capture.site) * FLOAT
    total += _attention_bytes(plan, unit.start, unit.end)
    for act in plan.hooks.interventions:
        total += act.rows_read(unit.start, unit.end) * _width(plan, act.site) * FLOAT
    return total


def _attention_bytes(plan: Plan, start: int, end: int) -> int:
    """Bytes of attention weights, with their keys, of samples [start, end)."""
    heads, total = _hyperparameter(plan, "attention.head_count", 1), 0
    for one in plan.hooks.attention:
        row_bytes = sum(FLOAT * (at + 1) + ROW_INDEX for i in range(start, end) for at in one.positions[i])
        total += len(one.layers) * heads * row_bytes
    return total


def _cached(plan: Plan, unit: PlannedUnit) -> int:
    card = plan.source.card
    heads = _hyperparameter(plan, "attention.head_count", 1)
    kv_heads = _hyperparameter(plan, "attention.head_count_kv", heads)
    width = _hyperparameter(plan, "attention.key_length", card.hidden_size // heads) * kv_heads
    positions = unit.rows + (unit.end - unit.start) * plan.max_tokens
    return 2 * FLOAT * card.n_layers * positions * width


def _decoded(plan: Plan) -> int:
    """Float32 bytes of the largest matrix of a layer, or of the most that is decoded of one at a time."""
    sizes = [
        math.prod(tensor.shape) * FLOAT
        for name, tensor in plan.source.file.tensors.items()
        if name.startswith("blk.") and tensor.type.name != "F32"
    ]
    return min(SLICE_BYTES, max(sizes, default=0))


def _head(plan: Plan) -> int:
    """Bytes of a slice of the head and of the logits that come out of it, where anything asks for logits."""
    wanted = plan.max_tokens or plan.scores_anything or plan.config.guard.positions
    if not (wanted or any(not SITES[c.site].per_layer for c in plan.captures)):
        return 0
    if plan.scores_anything or plan.choosing.samples:
        return HEAD_SLICE_BYTES + _whole_rows(plan)
    columns = min(plan.source.card.vocab_size, HEAD_SLICE_BYTES // (FLOAT * plan.source.card.hidden_size))
    rows = min(HEAD_ROWS, max(max(u.end - u.start for u in plan.units), plan.config.guard.positions))
    # Once as float32, and for likelihoods twice as float64.
    return HEAD_SLICE_BYTES + rows * columns * (FLOAT + 16)


def _whole_rows(plan: Plan) -> int:
    """Bytes of the rows of logits that are held whole, to be ranked or drawn from."""
    vocab = plan.source.card.vocab_size
    asked = max(u.end - u.start for u in plan.units) + len(plan.scores.tokens)
    rows = min(asked, max(1, WHOLE_BYTES // (FLOAT * vocab)))
    # Once as float32, and for log-probabilities twice as float64.
    return rows * vocab * (FLOAT + 16)


def _hyperparameter(plan: Plan, name: str, default: int) -> int:
    card = plan.source.card
    found = card.hyperparameters.get(f"{card.architecture}.{name}", default)
    return int(found) if isinstance(found, int) else default
