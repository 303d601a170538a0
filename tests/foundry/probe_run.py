"""A finished run with states that a test decides: what is planted in them is known.

Stimuli are roots x patterns x templates; captures `last` (after_layer, 3 layers) of `width` numbers.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.positions import Position, resolve, tokens_of_span
from pipelines import shards
from pipelines.config.selectors import parse_position
from pipelines.manifest import (
    CaptureRecord,
    Inputs,
    Origin,
    build_manifest,
    sample_order_sha256,
    stimuli_sha256,
    write_manifest,
)
from pipelines.rows import CaptureRows
from pipelines.stimuli.record import Stimulus, Target
from tests.foundry.fake_run import PlannedSample, part_metadata

UNIT = 40

States = Callable[[str, int, Sequence[Stimulus]], NDArray[np.float32]]
"""Capture and layer to states [stimuli, width]."""


@dataclass(frozen=True, slots=True)
class Word:
    """What a stimulus says; `ids` are its tokens."""

    labels: dict[str, str]
    prompt: str
    ids: tuple[int, ...]
    template: str | None = None
    expected: str | None = None
    reveals: tuple[str, ...] = ()
    target: Target | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    """Half-open bytes of each token; where there is a target."""


def crossed(roots: int, patterns: int, templates: int) -> list[Word]:
    """Every root in every pattern in every template; prompts name both, each by a number of its own."""
    return [
        Word(
            {"root": f"r{r:02d}", "pattern": f"p{p}", "kind": f"k{r % 2}"},
            f"t{t}: {chr(0x628 + r)}-{chr(0x62F + p)}",
            (100 + t, 200 + r, 300 + p),
            f"t{t}",
            f"{chr(0x628 + r)}{chr(0x62F + p)}",
        )
        for r in range(roots)
        for p in range(patterns)
        for t in range(templates)
    ]


def write_probe_run(
    directory: Path,
    words: Sequence[Word],
    states: States,
    *,
    captures: Sequence[CaptureRecord] | None = None,
    width: int = 16,
    failed: tuple[int, ...] = (),
    model: str = "m",
) -> Path:
    """Write a run of `words` by the product's own writers, and return its directory."""
    samples = [_sample(i, word) for i, word in enumerate(words)]
    captures = captures or (CaptureRecord("last", "after_layer", (0, 1, 2), "last", width),)
    inputs = Inputs(
        "c" * 64, "p" * 64, stimuli_sha256(s.stimulus for s in samples),
        sample_order_sha256([s.stimulus.source_index for s in samples]), model * 64, "t" * 64, 1,
    )  # fmt: skip
    told_model: dict[str, Any] = {"architecture": "llama", "n_layers": 3, "hidden_size": width}
    origin = Origin("planted", "float32", tuple(captures), {}, told_model, {}, {}, {}, None)
    stimuli = [s.stimulus for s in samples]
    whole = {c.name: np.stack([states(c.name, layer, stimuli) for layer in c.layers]) for c in captures}
    told = part_metadata(inputs)
    parts = [shards.write_stimuli(directory, samples, attempt="plan", metadata=told)]
    for unit, start in enumerate(range(0, len(samples), UNIT)):
        end = min(start + UNIT, len(samples))
        alive = [s for s in samples[start:end] if s.sample_index not in failed]
        rows = [_rows(c, alive, whole[c.name]) for c in captures]
        parts.append(
            shards.write_activations(
                directory, unit, "a0", rows, dtype="float32", sample_start=start, sample_end=end, metadata=told
            )
        )
    manifest = build_manifest(inputs, origin, samples=len(samples), parts=parts, failed_samples=failed)
    if failed:
        (directory / "failures.jsonl").write_text("".join(f'{{"sample_index": {i}}}\n' for i in failed))
    write_manifest(directory, manifest)
    return directory


def _sample(index: int, word: Word) -> PlannedSample:
    stimulus = Stimulus(
        index, f"s-{index:04d}", word.prompt, word.labels, word.template, word.reveals, word.target, word.expected,
        "exact",
    )  # fmt: skip
    size = len(word.prompt.encode())
    offsets = list(word.offsets) or [(0, 1)] * (len(word.ids) - 1) + [(1, size)]
    span = tokens_of_span(offsets, word.target.start, word.target.end) if word.target else None
    return PlannedSample(index, stimulus, np.array(word.ids, np.int32), offsets, span)


def _rows(record: CaptureRecord, samples: Sequence[PlannedSample], values: NDArray[np.float32]) -> CaptureRows:
    """One row for each sample, or one for each token where the position is `all`."""
    written = json.loads(record.position) if record.position.startswith("{") else record.position
    position = parse_position(written)
    assert isinstance(position, Position)
    keys = [(s, p) for s in samples for p in resolve(position, len(s.tokens), s.span_tokens)]
    ints = lambda found: np.array(list(found), np.int32)  # noqa: E731
    return CaptureRows(
        record.name,
        record.site,
        record.layers,
        ints(s.sample_index for s, _ in keys),
        [s.stimulus.id for s, _ in keys],
        ints(-1 for _ in keys),
        ints(p for _, p in keys),
        ints(s.tokens[p] for s, p in keys),
        ints(-1 for _ in keys),
        np.zeros(len(keys), np.bool_),
        np.ascontiguousarray(values[:, [s.sample_index for s, _ in keys]]),
    )
