"""The hook plan: what is captured and changed in every prompt, compiled once, in the client.

config.hooks, stimuli, tokens -> HookPlan -> the plan's file -> CaptureWork, InterventionWork, experiments of a unit
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ember.card import ModelCard
from ember.errors import InputError
from ember.hooks.contexts import ModelContext, context_of
from ember.hooks.loading import load_experiment
from ember.sites import SITES
from pipelines.canonical import plain, sha256_of
from pipelines.captures import PlannedCapture, plan_attention, plan_capture
from pipelines.choices import Sample, selected
from pipelines.config.hooks import SAID, ExperimentConfig, HooksConfig
from pipelines.errors import ConfigError
from pipelines.hook_tables import (
    AttentionTable,
    ExperimentTable,
    HookTables,
    InterventionTable,
    RowsOfRun,
    Source,
    Vectors,
)
from pipelines.interventions import Compiler


@dataclass(frozen=True, slots=True)
class HookPlan:
    """Captures, interventions, experiments and kept attention of a run, for every sample."""

    captures: tuple[PlannedCapture, ...]
    interventions: tuple[InterventionTable, ...] = ()
    experiments: tuple[ExperimentTable, ...] = ()
    attention: tuple[AttentionTable, ...] = ()

    @property
    def tables(self) -> HookTables:
        """What goes into the plan's file beside captures."""
        return HookTables(self.interventions, self.experiments, self.attention)

    def hooked(self, sample: int) -> bool:
        """Whether a sample has an experiment."""
        return any(bool(one.on[sample]) for one in self.experiments)

    def changed(self, sample: int) -> bool:
        """Whether something may change states of a sample's prompt, so that its predictions are not the model's own."""
        return any(one.mutates and one.on[sample] for one in self.experiments) or any(
            one.writes(sample) for one in self.interventions
        )

    def private_from(self, lengths: Sequence[int]) -> list[int] | None:
        """For each prompt, the first position whose row it shares with nobody; None where all share everything.

        A prompt with an experiment shares nothing; one that is acted on, what lies before the first token changed.
        """
        if not (self.interventions or self.experiments):
            return None
        limits = [0 if self.hooked(i) else length for i, length in enumerate(lengths)]
        for one in self.interventions:
            limits = [min([limit, *one.writes(i)]) for i, limit in enumerate(limits)]
        return None if limits == list(lengths) else limits

    def layers_run(self, n_layers: int) -> int:
        """Layers that captures need; all of them where an experiment looks, or something reads the logits."""
        if self.experiments or any(not SITES[c.site].per_layer or c.step is not None for c in self.captures):
            return n_layers
        depths = [max(c.layers) + (c.site != "before_layer") for c in self.captures]
        return max(depths + [1 + max(one.layers) for one in self.attention], default=0)

    @property
    def sha256(self) -> str:
        """Hash of everything that acts or looks: places in every prompt, operations, contents of sources, code."""
        captures = [
            [c.name, c.site, c.layers, c.pooled, c.positions_sha256, c.observe, c.step, c.on_steps]
            for c in self.captures
        ]
        interventions = [
            [
                one.operation,
                one.site,
                one.strength,
                *(sha256_of([ragged.values, ragged.starts]) for ragged in (one.layers, one.positions, one.steps)),
                source_record(one.source),
            ]
            for one in self.interventions
        ]
        experiments = [[*_experiment(one).items(), one.on] for one in self.experiments]
        attention = [[one.name, one.layers, one.positions.values, one.positions.starts] for one in self.attention]
        return sha256_of([captures, interventions, experiments, attention])

    def record(self, config: HooksConfig) -> dict[str, Any] | None:
        """Say for the manifest what acted and where its rows came from; None where nothing did."""
        if not (self.interventions or self.experiments):
            return None
        written = config.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {
            "interventions": [
                {key: said[key] for key in ("site", "layers", "position", "where") if key in said}
                | {"operation": asked.operation, "strength": one.strength, "source": source_record(one.source)}
                | {"samples": int((np.diff(one.layers.starts) > 0).sum())}
                for one, asked, said in zip(self.interventions, config.intervene, written["intervene"], strict=True)
            ],
            "experiments": [
                _experiment(one) | {"where": said["where"], "samples": int(one.on.sum())}
                for one, said in zip(self.experiments, written["experiment"], strict=True)
            ],
        }


_OF_RUN: Final = ("semantic_hash", "input_hash", "model_sha256", "capture", "site")


def source_record(source: Source) -> dict[str, Any] | None:
    """Say what a source holds, not where it lies."""
    if source is None:
        return None
    if isinstance(source, Vectors):
        return {"vector_sha256": source.sha256, "layers": list(source.layers)}
    if isinstance(source, RowsOfRun):
        named = {name: getattr(source.run, name) for name in _OF_RUN}
        rows = sha256_of([ragged.values for ragged in (source.parts, source.rows)])
        return named | {"layer": source.layer, "rows_sha256": rows}
    return {"capture_of_this_run": source.name, "layer": source.layer}


def _experiment(one: ExperimentTable) -> dict[str, Any]:
    return {
        "use": one.shown,
        "options": plain(one.options),
        "name": one.name,
        "mutates": one.mutates,
        "source_sha256": one.source_sha256,
    }


def plan_hooks(
    config: HooksConfig, samples: Sequence[Sample], card: ModelCard, max_tokens: int, model_sha256: Callable[[], str]
) -> HookPlan:
    """Compile the hooks of a run.

    `max_tokens` are those generated after each prompt at most; `model_sha256` is only asked where rows come from
    another run. Raises ConfigError for what cannot be, by key and by the ids of stimuli; VerifyError for a damaged
    source run.
    """
    model = context_of(card)
    experiments = tuple(_experiment_table(i, one, samples, model) for i, one in enumerate(config.experiment))
    changing = [one.name for one in experiments if one.mutates]
    silent = [i for i, capture in enumerate(config.capture) if capture.observe is None]
    if changing and silent:
        raise ConfigError(
            f"hooks.capture.{silent[0]}: experiment {changing[0]!r} may change hidden states, and {SAID}: "
            "write `observe: before` or `observe: after`"
        )
    captures = tuple(plan_capture(i, one, samples, card, max_tokens) for i, one in enumerate(config.capture))
    compiler = Compiler(samples, card, captures, max_tokens, model_sha256)
    interventions = tuple(compiler.table(i, one) for i, one in enumerate(config.intervene))
    attention = tuple(plan_attention(i, one, samples, card) for i, one in enumerate(config.attention))
    return HookPlan(captures, interventions, experiments, attention)


def _experiment_table(
    place: int, asked: ExperimentConfig, samples: Sequence[Sample], model: ModelContext
) -> ExperimentTable:
    key = f"hooks.experiment.{place}"
    on = np.array(selected(asked.where, samples, key), np.bool_)
    try:
        made = load_experiment(asked.use, asked.options)
        made.check(model)
    except InputError as error:
        raise ConfigError(f"{key}: {error}") from error
    return ExperimentTable(made.spec, dict(made.options), made.name, made.mutates, made.source_sha256, on)


def hook_notes(plan: HookPlan, model_sha256: Callable[[], str], *, scored: bool) -> list[str]:
    """Say what deserves a look in a hook plan, where texts are `scored` or not: one line per matter."""
    notes = []
    for i, one in enumerate(plan.interventions):
        if one.changes_nothing:
            notes.append(f"hooks.intervene.{i} changes nothing: its strength is {one.strength:g}")
        elif scored and len(one.steps.values):
            notes.append(f"hooks.intervene.{i} acts on generated tokens, not on the texts that are scored")
        if isinstance(one.source, RowsOfRun) and one.source.run.model_sha256 != model_sha256():
            notes.append(f"hooks.intervene.{i}: the rows of its source come from another model")
    return notes
