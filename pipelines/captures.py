"""The captures of a plan: layers counted out, positions found in every prompt, filters applied."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ember.card import ModelCard
from ember.errors import InputError
from ember.work import ALL_STEPS, Observe
from pipelines.choices import Sample, for_each, layers_of, selected, tokens_at
from pipelines.config.hooks import AttentionConfig, CaptureConfig
from pipelines.errors import ConfigError
from pipelines.hook_tables import AttentionTable, Ragged


@dataclass(frozen=True, slots=True)
class PlannedCapture:
    """A capture with its layers counted out and its positions resolved for every sample."""

    name: str
    site: str
    layers: tuple[int, ...]
    pooled: bool
    positions: Ragged
    """For each sample, token indices; none for samples that it does not concern."""
    observe: Observe = "after"
    step: int | None = None
    """A generated step, or ALL_STEPS; None for tokens of the prompt."""
    on_steps: tuple[bool, ...] = ()
    """With `step`: for each sample, whether its steps are captured."""
    steps_at_most: int = 0
    """Rows that a sample's steps give at most."""

    @property
    def positions_sha256(self) -> str:
        """Hash of the positions, as `sha256_of` gives it for a list of lists, without making one."""
        digest = hashlib.sha256(b"[")
        for sample, at in enumerate(self.positions):
            digest.update(f"{',' if sample else ''}[{','.join(map(str, at))}]".encode())
        digest.update(b"]")
        return digest.hexdigest()

    @property
    def n_rows(self) -> int:
        """Rows of the whole run at each layer; with `step`, as many as there can be."""
        return self.rows_of(0, max(len(self.positions), len(self.on_steps)))

    def rows_of(self, start: int, end: int) -> int:
        """As `n_rows`, for samples [start, end)."""
        if self.step is not None:
            return sum(self.on_steps[start:end]) * self.steps_at_most
        counts = np.diff(self.positions.starts[start : end + 1])
        return int((counts > 0).sum() if self.pooled else counts.sum())


def plan_attention(place: int, asked: AttentionConfig, samples: Sequence[Sample], card: ModelCard) -> AttentionTable:
    """Plan the attention weights at `place` of the list; errors as `plan_capture`."""
    on = selected(asked.where, samples, f"hooks.attention.{place}")
    try:
        layers = layers_of(asked.layers, "after_attention", card.n_layers, samples[0])
    except InputError as error:
        raise ConfigError(f"attention {asked.name!r}: {error}") from error
    found = for_each(
        samples,
        on,
        lambda i: tokens_at(asked.position, samples[i]),
        f"without the position that attention {asked.name!r} asks for",
        "change its position or these stimuli, or leave them out with `where`",
    )
    return AttentionTable(asked.name, layers, Ragged.of([found.get(i, ()) for i in range(len(samples))]))


def plan_capture(
    place: int, asked: CaptureConfig, samples: Sequence[Sample], card: ModelCard, max_tokens: int
) -> PlannedCapture:
    """Plan the capture at `place` of the list.

    Raises ConfigError for layers that do not exist, naming the stimuli without the position, and for a filter that
    selects nothing.
    """
    on = selected(asked.where, samples, f"hooks.capture.{place}")
    try:
        layers = layers_of(asked.layers, asked.site, card.n_layers, samples[0])
    except InputError as error:
        raise ConfigError(f"capture {asked.name!r}: {error}") from error
    observe = asked.observe or "after"
    step = asked.position.step
    if step is not None:
        steps = max_tokens - 1 if step == ALL_STEPS else 1
        nothing, pooled = Ragged.of([()] * len(samples)), asked.position.pooled
        return PlannedCapture(asked.name, asked.site, layers, pooled, nothing, observe, step, tuple(on), steps)
    found = for_each(
        samples,
        on,
        lambda i: tokens_at(asked.position, samples[i]),
        f"without the position that capture {asked.name!r} asks for",
        "change the capture's position or these stimuli, or leave them out with `where`",
    )
    positions = Ragged.of([found.get(i, ()) for i in range(len(samples))])
    return PlannedCapture(asked.name, asked.site, layers, asked.position.pooled, positions, observe)
