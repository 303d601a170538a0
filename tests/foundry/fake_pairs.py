"""Runs like one of `make_run` that differ from it where a test says so, or in nothing but order and units."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipelines import shards
from pipelines.manifest import CaptureRecord, sample_order_sha256
from pipelines.rows import CaptureRows, GenerationRow
from tests.foundry.fake_run import (
    CAPTURES,
    FakeRun,
    PlannedSample,
    capture_rows,
    generation_row,
    judged,
    make_run,
    part_metadata,
)

Alter = Callable[[CaptureRows], CaptureRows]


def altered(
    directory: Path,
    alter: Alter = lambda rows: rows,
    say: Callable[[GenerationRow], GenerationRow] = lambda row: row,
    units: Sequence[int] = (4, 3, 6),
) -> FakeRun:
    """The run of `make_run` whose rows and continuations went through `alter` and `say`."""
    run = make_run(directory, units=units)
    run.parts = [part for part in run.parts if part.table == "stimuli"]
    for unit, (start, end) in enumerate(run.units):
        alive = run.samples[start:end]
        told = {"sample_start": start, "sample_end": end, "metadata": part_metadata(run.inputs)}
        rows = [alter(capture_rows(record, alive)) for record in CAPTURES]
        for folder in ("activations", "logits", "generations"):
            (directory / folder / f"part-{unit:05d}.parquet").unlink()
        inner, logits = rows[:-1], rows[-1:]
        run.parts += [
            shards.write_activations(directory, unit, "b", inner, **told),
            shards.write_logits(directory, unit, "b", logits, **told),
            shards.write_generations(directory, unit, "b", [judged(say(generation_row(s))) for s in alive], **told),
        ]
    run.finish()
    return run


def shuffled(directory: Path, order: Sequence[int], units: Sequence[int]) -> FakeRun:
    """The same stimuli with the same values in another order and other units."""
    run = make_run(directory, units=(4, 3, 6))
    for folder in ("activations", "logits", "generations"):
        shutil.rmtree(directory / folder)
    (directory / "stimuli.parquet").unlink()
    before = run.samples
    run.samples = [replace(before[old], sample_index=new) for new, old in enumerate(order)]
    run.inputs = replace(
        run.inputs, sample_order_sha256=sample_order_sha256([s.stimulus.source_index for s in run.samples])
    )
    told = part_metadata(run.inputs)
    run.parts = [shards.write_stimuli(directory, run.samples, attempt="plan", metadata=told)]
    ends = np.cumsum([0, *units]).tolist()
    for unit, (start, end) in enumerate(pairwise(ends)):
        alive = run.samples[start:end]
        rows = [capture_rows(record, alive, _values(record, before, order[start:end])) for record in CAPTURES]
        shared = {"sample_start": start, "sample_end": end, "metadata": told}
        texts = [replace(generation_row(before[old]), sample_index=new) for new, old in enumerate(order)][start:end]
        run.parts += [
            shards.write_activations(directory, unit, "b", rows[:-1], **shared),
            shards.write_logits(directory, unit, "b", rows[-1:], **shared),
            shards.write_generations(directory, unit, "b", texts, **shared),
        ]
    run.finish()
    return run


def _values(record: CaptureRecord, before: list[PlannedSample], old: Sequence[int]) -> np.ndarray:
    return np.concatenate([capture_rows(record, [before[i]]).values for i in old], axis=1)
