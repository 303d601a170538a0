"""Small captures and a way to write them, for tests of writing; light to import, since subprocesses do."""

from pathlib import Path
from typing import Any

import numpy as np

from pipelines import shards
from pipelines.parts import PartFile
from pipelines.rows import CaptureRows

WRITE: dict[str, Any] = {"sample_start": 0, "sample_end": 10_000, "metadata": {"ember.input_hash": "abc"}}


def rows_of(
    n: int, width: int = 8, *, layers: tuple[int, ...] = (0, 1), name: str = "last", site: str = "after_layer"
) -> CaptureRows:
    """A capture of one row per sample."""
    fixed = lambda value: np.full(n, value, np.int32)  # noqa: E731
    values = np.random.default_rng(n).normal(size=(len(layers), n, width)).astype(np.float32)
    ids = [f"s{i}" for i in range(n)]
    return CaptureRows(
        name, site, layers, np.arange(n, dtype=np.int32), ids, fixed(-1), fixed(3), fixed(5), fixed(-1),
        np.zeros(n, np.bool_), values,
    )  # fmt: skip


def write(run_dir: Path, *captures: CaptureRows, unit: int | str = 0, attempt: str = "a0", **more: Any) -> PartFile:
    return shards.write_activations(run_dir, unit, attempt, captures or (rows_of(5),), **(WRITE | more))
