"""The plan: every prompt as token ids, in an order and in units that depend on the config and the model alone.

Plan order sorts prompts so that equal prefixes meet; `sample_index` is the place in it. A unit is a range of samples,
becomes one part file of every table, and is the same whatever number of workers runs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ember.assets_path import resolve_model
from ember.card import ModelCard
from ember.errors import ModelError
from ember.gguf import GGUFFile, open_gguf
from ember.models import read_model
from ember.tokenizer import load_tokenizer
from ember.units import build_tree, cut_units, default_unit_rows, plan_order, shared_prefix
from ember.work import Tokens
from pipelines.captures import PlannedCapture
from pipelines.continuations import GREEDY, Choosing, ContinuationTable
from pipelines.hooks import HookPlan, hook_notes, plan_hooks
from pipelines.memory import give_back
from pipelines.pieces import Piece
from pipelines.plan_checks import notes_on, refuse_unfit
from pipelines.scoring import extra_rows, plan_scores, score_notes
from pipelines.stimuli import build_set
from pipelines.stimuli.checks import find
from pipelines.stimuli.record import StimulusSet
from pipelines.tokenized import Samples, Tokenized, special_ids, tokenize

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer
    from pipelines.config import RunConfig


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The model's file as opened by the client: header, card and tokenizer, no weights."""

    path: Path
    file: GGUFFile
    card: ModelCard
    tokenizer: "Tokenizer"


PlannedSample = Tokenized
"""A stimulus as the model reads it, with its place in the plan."""


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """A range of samples that run together."""

    index: int
    start: int
    end: int
    rows: int
    """Token rows, every prompt counted whole."""
    rows_shared: int
    """Token rows to compute, equal prefixes counted once."""
    rows_scored: int = 0
    """Token rows of scored texts, which come on top; those of one prompt may share some."""

    @property
    def piece(self) -> Piece:
        """The unit as a piece that has not been split."""
        return Piece(self.index, "", self.start, self.end)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run will do."""

    config: "RunConfig"
    source: ModelSource
    samples: Samples
    """In plan order."""
    units: tuple[PlannedUnit, ...]
    hooks: HookPlan
    scores: ContinuationTable
    """Texts to score after each prompt."""
    unit_rows: int
    special_ids: frozenset[int]
    """Ids among the prompts' tokens that are control tokens."""
    notes: tuple[str, ...]
    """What deserves a look before the run; none of it stops one."""
    stimuli_record: dict[str, Any]
    """Where the stimuli came from and what was done to them, for the manifest."""

    @property
    def captures(self) -> tuple[PlannedCapture, ...]:
        """What is taken out of the model."""
        return self.hooks.captures

    @property
    def layers_run(self) -> int:
        """Layers that run in a unit without the smoke guard, whose likelihoods need all."""
        n_layers = self.source.card.n_layers
        return n_layers if self.max_tokens or self.scores_anything else self.hooks.layers_run(n_layers)

    @property
    def changes_first_unit(self) -> bool:
        """Whether something changes states of the first unit, so that its predictions are not the model's own."""
        return any(self.hooks.changed(sample) for sample in range(self.units[0].start, self.units[0].end))

    @property
    def rows(self) -> int:
        """Token rows before sharing."""
        return sum(unit.rows for unit in self.units)

    @property
    def rows_shared(self) -> int:
        """Token rows after sharing prefixes inside units."""
        return sum(unit.rows_shared for unit in self.units)

    @property
    def rows_scored(self) -> int:
        """Token rows of scored texts."""
        return sum(unit.rows_scored for unit in self.units)

    @property
    def choosing(self) -> Choosing:
        """How new tokens are chosen."""
        asked = self.config.generate
        if asked is None:
            return GREEDY
        return Choosing(asked.temperature, asked.top_k, asked.top_p, asked.seed, asked.stop)

    @property
    def top_k(self) -> int:
        """Likeliest first tokens to keep after each prompt; 0: none."""
        return self.config.score.top_k if self.config.score else 0

    @property
    def scores_anything(self) -> bool:
        """Whether anything is asked about likelihoods."""
        return self.top_k > 0 or len(self.scores.merged) > 0

    @property
    def max_tokens(self) -> int:
        """New tokens per prompt at most; 0 without generation."""
        return self.config.generate.max_tokens if self.config.generate else 0

    @property
    def pieces(self) -> list[Piece]:
        """All units, none of them split."""
        return [unit.piece for unit in self.units]


def open_source(config: "RunConfig") -> ModelSource:
    """Open the config's model, and check its sha256 if the config gives one."""
    path = resolve_model(config.model.path)
    file = open_gguf(path)
    wanted = config.model.sha256
    if wanted and file.sha256() != wanted:
        raise ModelError(
            f"{path}: sha256 is {file.sha256()}, model.sha256 in the config is {wanted}; "
            "get the file that was meant, or correct the config"
        )
    tokenizer = load_tokenizer(file)
    if config.tokenizer.add_bos != "file":
        tokenizer = tokenizer.with_add_bos(config.tokenizer.add_bos)
    return ModelSource(path, file, read_model(file), tokenizer)


def make_plan(config: "RunConfig", stimuli: StimulusSet | None = None) -> Plan:
    """Make the plan of a run; `stimuli` are used in place of those that the config describes.

    Raises ConfigError naming the stimuli that cannot be run: without tokens, over the context, without the span.
    """
    source = open_source(config)
    found = stimuli or build_set(config)
    parse_special = config.tokenizer.parse_special
    tokenized = tokenize(found.stimuli, source.tokenizer, parse_special=parse_special)
    max_tokens = config.generate.max_tokens if config.generate else 0
    refuse_unfit(tokenized, source.card, max_tokens)
    samples = tokenized.reordered(plan_order(tokenized.prompts))
    hooks = plan_hooks(config.hooks, samples, source.card, max_tokens, source.file.sha256)
    scores = plan_scores(config.score, samples, source.tokenizer, source.card, parse_special=parse_special)
    private = hooks.private_from(samples.lengths)
    unit_rows, units = plan_units(samples.prompts, config.engine.unit_rows, extra_rows(scores), private)
    notes = [*source.card.notes(), *source.tokenizer.warnings]
    notes += [*notes_on(samples, source.tokenizer, parse_special=parse_special), *score_notes(config.score, scores)]
    notes += hook_notes(hooks, source.file.sha256, scored=len(scores.merged) > 0)
    # The last token of all prompts, which notes_on compares, says more than their last character.
    notes += [finding.message for finding in find(found.stimuli, found.dropped) if finding.code != "same_ending"]
    special = special_ids(samples, source.tokenizer)
    give_back()
    return Plan(config, source, samples, units, hooks, scores, unit_rows, special, tuple(notes), found.record)


def plan_units(
    prompts: Sequence[Tokens],
    unit_rows: int | None,
    extra: Sequence[int] | None = None,
    private: Sequence[int] | None = None,
) -> tuple[int, tuple[PlannedUnit, ...]]:
    """Cut prompts, in plan order, into units; returns the row limit in use and the units.

    `extra` counts the rows that each prompt's scored texts add; `private` says from which position on each prompt
    shares nothing.
    """
    extra = extra or [0] * len(prompts)
    limit = unit_rows or default_unit_rows(shared_rows(prompts, private) + sum(extra))
    units = []
    for index, (start, end) in enumerate(cut_units(prompts, limit, private, extra)):
        shared = shared_rows(prompts[start:end], private and private[start:end])
        rows = sum(map(len, prompts[start:end]))
        units.append(PlannedUnit(index, start, end, rows, shared, sum(extra[start:end])))
    return limit, tuple(units)


def shared_rows(prompts: Sequence[Tokens], private: Sequence[int] | None) -> int:
    """Token rows of prompts in plan order, equal prefixes counted once."""
    if private is not None:
        return len(build_tree(prompts, private).tokens)
    # among sorted prompts the longest common prefix is that with the one before
    common = sum(shared_prefix(before, prompt) for before, prompt in pairwise(prompts))
    return sum(map(len, prompts)) - common
