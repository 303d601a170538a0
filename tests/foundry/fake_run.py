"""A finished run made without a model: random vectors, written by the product's own writers.

8 to 13 samples in uneven units, 4 layers of 12 numbers
captures: `last` (after_layer, all layers), `every` (after_layer 1 and 2, all tokens), `word` (before_layer 0, pooled),
          `final` (before_logits), `scores` (after_logits, 31 numbers)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines import shards
from pipelines.manifest import (
    CaptureRecord,
    Inputs,
    Manifest,
    Origin,
    build_manifest,
    sample_order_sha256,
    stimuli_sha256,
    write_manifest,
)
from pipelines.parts import PartFile
from pipelines.rows import SCORE_COLUMNS, CaptureRows, GenerationRow, ScoreRow
from pipelines.stimuli.expect import compare
from pipelines.stimuli.record import Stimulus, Target

HIDDEN = 12
VOCAB = 31
N_LAYERS = 4

CAPTURES = (
    CaptureRecord("last", "after_layer", (0, 1, 2, 3), "last", HIDDEN),
    CaptureRecord("every", "after_layer", (1, 2), "all", HIDDEN),
    CaptureRecord("word", "before_layer", (0,), "mean", HIDDEN),
    CaptureRecord("final", "before_logits", (-1,), "last", HIDDEN),
    CaptureRecord("scores", "after_logits", (-1,), "last", VOCAB),
)


@dataclass(frozen=True, slots=True)
class PlannedSample:
    sample_index: int
    stimulus: Stimulus
    tokens: NDArray[np.int32]
    byte_offsets: list[tuple[int, int]]
    span_tokens: tuple[int, int] | None


@dataclass(slots=True)
class FakeRun:
    directory: Path
    samples: list[PlannedSample]
    inputs: Inputs
    origin: Origin
    units: list[tuple[int, int]]
    values: dict[tuple[str, int], NDArray[np.float32]]
    """(capture, layer) -> [rows, width] for all samples, in order."""
    owner: dict[str, NDArray[np.int32]]
    """capture -> sample of each row."""
    failed: tuple[int, ...] = ()
    parts: list[PartFile] = field(default_factory=list)

    def matrix(self, capture: str, layer: int) -> NDArray[np.float32]:
        """What reading must give."""
        return self.values[capture, layer][~np.isin(self.owner[capture], self.failed)]

    def finish(self) -> Manifest:
        """Build the manifest anew from the parts, and write it."""
        manifest = build_manifest(
            self.inputs, self.origin, samples=len(self.samples), parts=self.parts, failed_samples=self.failed
        )
        if self.failed:
            lines = "".join(f'{{"sample_index": {i}}}\n' for i in self.failed)
            (self.directory / "failures.jsonl").write_text(lines)
        write_manifest(self.directory, manifest)
        return manifest


def make_samples(n: int) -> list[PlannedSample]:
    """Planned samples of 3 to 6 tokens; every third lacks the label `pattern` and what is expected."""
    samples = []
    for i in range(n):
        whole = i % 3 > 0
        prompt = f"كتب {i}"
        labels = {"root": f"r{i % 4}"} | ({"pattern": f"p{i % 2}"} if whole else {})
        target = Target("كتب", 0, 6) if whole else None
        expected = " كاتب" if whole else None
        stimulus = Stimulus(
            (i * 5) % n if n % 5 else n - 1 - i, f"s-{i:03d}", prompt, labels, "ask" if whole else None,
            ("root",) if whole else (), target, expected, "exact",
        )  # fmt: skip
        size = 3 + i % 4
        tokens = (np.arange(size, dtype=np.int32) * 7 + i) % VOCAB
        offsets = [(min(j, 7), min(j + 1, 8)) for j in range(size - 1)] + [(size - 1, len(prompt.encode()))]
        samples.append(PlannedSample(i, stimulus, tokens.astype(np.int32), offsets, (0, 2) if whole else None))
    return samples


def capture_rows(
    record: CaptureRecord, samples: Sequence[PlannedSample], values: NDArray[np.float32] | None = None
) -> CaptureRows:
    """Rows of one capture for `samples`; values are random, decided by capture and sample."""
    pooled = record.position == "mean"
    keys = [
        (s, p)
        for s in samples
        for p in (range(len(s.tokens)) if record.position == "all" else [-1 if pooled else len(s.tokens) - 1])
    ]
    ints = lambda found: np.array(list(found), np.int32)  # noqa: E731
    return CaptureRows(
        record.name,
        record.site,
        record.layers,
        ints(s.sample_index for s, _ in keys),
        [s.stimulus.id for s, _ in keys],
        ints(-1 for _ in keys),
        ints(p for _, p in keys),
        ints(-1 if p < 0 else s.tokens[p] for s, p in keys),
        ints(-1 for _ in keys),
        np.array([p == 0 for _, p in keys], np.bool_),
        random_values(record, keys) if values is None else values,
    )


def random_values(record: CaptureRecord, keys: Sequence[tuple[PlannedSample, int]]) -> NDArray[np.float32]:
    """[layers, rows, width], the same for the same capture, sample and position."""
    rows = []
    for sample, position in keys:
        seed = [len(record.name), ord(record.name[0]), sample.sample_index, position + 1]
        rows.append(np.random.default_rng(seed).normal(size=(len(record.layers), record.width)))
    shape = (len(record.layers), len(keys), record.width)
    return np.stack(rows, axis=1).astype(np.float32) if rows else np.empty(shape, np.float32)


def generation_row(sample: PlannedSample) -> GenerationRow:
    """A continuation: every third sample produces nothing."""
    ids = [(sample.sample_index + j) % VOCAB for j in range(sample.sample_index % 3)]
    text = " كاتب\n" if ids else ""
    right = sample.stimulus.expected is not None and bool(ids)
    return GenerationRow(
        sample.sample_index, sample.stimulus.id, len(sample.tokens), ids, text, "length",
        sample.stimulus.expected, "exact", right, False, right, right, score=score_row(sample),
    )  # fmt: skip


def judged(row: GenerationRow) -> GenerationRow:
    """The row with its two texts compared anew."""
    if row.expected is None or not row.stopped:
        return replace(row, correct=False, match_raw=False, match_trimmed=False, match_nfc_trimmed=False)
    match = compare(row.expected, row.text, "exact")
    return replace(
        row, correct=match.correct, match_raw=match.raw, match_trimmed=match.trimmed, match_nfc_trimmed=match.nfc
    )


def score_row(sample: PlannedSample) -> ScoreRow:
    """Scores of the expected text, where there is one, of two choices, and of the likeliest three tokens."""
    values = (-0.25 - sample.sample_index, -0.5, -0.125)
    choices = (" كاتب", " مكتوب") if sample.sample_index % 2 else (" مكتوب", " كاتب")
    sums = (-3.5, -4.0)
    whole = ScoreRow(
        sum(values), 3, 9, 5, 4, (5, 6, 7), values, (4, 1, 2), bool(sample.sample_index % 2),
        choices, sums, (3, 4), (False, True), 0, 1, 0 if sample.sample_index % 2 == 0 else 1,
        bool(sample.sample_index % 2), (3, 9, 4), (-0.5, -1.5, -2.5),
    )  # fmt: skip
    if sample.stimulus.expected is not None:
        return whole
    bare = ScoreRow()
    unscored = {name: getattr(bare, name) for name in SCORE_COLUMNS if name.startswith(("expected", "merged"))}
    return replace(whole, choice_correct=False, **unscored)


def part_metadata(inputs: Inputs) -> dict[str, str]:
    return {"ember.input_hash": inputs.input_hash, "ember.plan_sha256": inputs.plan_sha256}


def make_run(
    directory: Path,
    *,
    units: Sequence[int] = (4, 3, 6),
    dtype: str = "float32",
    failed: tuple[int, ...] = (),
    captures: tuple[CaptureRecord, ...] = CAPTURES,
) -> FakeRun:
    """Write a whole run whose units have the given numbers of samples; `failed` samples get no rows."""
    samples = make_samples(sum(units))
    ends = np.cumsum([0, *units]).tolist()
    inputs = Inputs(
        "c" * 64, "p" * 64, stimuli_sha256(s.stimulus for s in samples),
        sample_order_sha256([s.stimulus.source_index for s in samples]), "m" * 64, "t" * 64, 1,
    )  # fmt: skip
    model: dict[str, Any] = {"architecture": "llama", "n_layers": N_LAYERS, "hidden_size": HIDDEN}
    origin = Origin(
        "fake", dtype, captures, {}, model, {"model": "gpt2"}, {"route": "reference"}, {"rung": "smoke"}, None
    )
    whole = {record.name: capture_rows(record, samples) for record in captures}
    values = {(r.name, layer): whole[r.name].values[i] for r in captures for i, layer in enumerate(r.layers)}
    owner = {name: rows.sample_index for name, rows in whole.items()}
    run = FakeRun(directory, samples, inputs, origin, list(pairwise(ends)), values, owner, failed)
    told = part_metadata(inputs)
    run.parts.append(shards.write_stimuli(directory, samples, attempt="plan", metadata=told))
    for unit in range(len(units)):
        run.parts += write_unit(run, unit, "a0")
    run.finish()
    return run


def write_unit(run: FakeRun, unit: int, attempt: str) -> list[PartFile]:
    """Write the parts of one unit."""
    start, end = run.units[unit]
    alive = [s for s in run.samples[start:end] if s.sample_index not in run.failed]
    inner = [capture_rows(r, alive) for r in run.origin.captures if r.site != "after_logits"]
    logits = [capture_rows(r, alive) for r in run.origin.captures if r.site == "after_logits"]
    shared: dict[str, Any] = {"sample_start": start, "sample_end": end, "metadata": part_metadata(run.inputs)}
    dtype = run.origin.dtype
    parts = [shards.write_activations(run.directory, unit, attempt, inner, dtype=dtype, **shared)]
    if logits:
        parts.append(shards.write_logits(run.directory, unit, attempt, logits, dtype=dtype, **shared))
    rows = [generation_row(s) for s in alive]
    parts.append(shards.write_generations(run.directory, unit, attempt, rows, **shared))
    return parts
