"""The plan: every prompt as token ids, in an order and in units that depend on the config and the model alone.

Plan order sorts prompts so that equal prefixes meet; `sample_index` is the place in it. A unit is a range of samples,
becomes one part file of every table, and is the same whatever number of workers runs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ember.assets_path import resolve_model
from ember.card import ModelCard
from ember.errors import InputError, ModelError
from ember.gguf import GGUFFile, open_gguf
from ember.models import read_model
from ember.positions import resolve
from ember.sites import NO_LAYER, SITES
from ember.tokenizer import load_tokenizer
from ember.units import cut_units, default_unit_rows, plan_order, shared_prefix
from ember.work import Tokens
from pipelines.continuations import GREEDY, Choosing, ContinuationTable
from pipelines.errors import ConfigError
from pipelines.pieces import Piece
from pipelines.plan_checks import notes_on, refusal, refuse_unfit
from pipelines.scoring import extra_rows, plan_scores, score_notes
from pipelines.stimuli import build_set
from pipelines.stimuli.checks import find
from pipelines.stimuli.record import Stimulus
from pipelines.tokenized import Offsets, special_ids, tokenize

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer
    from pipelines.config import CaptureConfig, RunConfig


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The model's file as opened by the client: header, card and tokenizer, no weights."""

    path: Path
    file: GGUFFile
    card: ModelCard
    tokenizer: "Tokenizer"


@dataclass(frozen=True, slots=True)
class PlannedSample:
    """A stimulus with its place in the plan."""

    sample_index: int
    stimulus: Stimulus
    tokens: Tokens
    """[n] token ids as fed."""
    offsets: Offsets
    """[n, 2] byte range of each token in the prompt; empty for BOS."""
    span_tokens: tuple[int, int] | None
    """Half-open range of tokens that meet the target."""

    @property
    def byte_offsets(self) -> list[tuple[int, int]]:
        """`offsets` as pairs of integers."""
        return [(start, end) for start, end in self.offsets.tolist()]


@dataclass(frozen=True, slots=True)
class PlannedCapture:
    """A capture with its layers counted out and its positions resolved for every sample."""

    name: str
    site: str
    layers: tuple[int, ...]
    pooled: bool
    positions: tuple[tuple[int, ...], ...]
    """For each sample, token indices."""

    @property
    def n_rows(self) -> int:
        """Rows of the whole run at each layer."""
        return len(self.positions) if self.pooled else sum(map(len, self.positions))


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
    samples: tuple[PlannedSample, ...]
    units: tuple[PlannedUnit, ...]
    captures: tuple[PlannedCapture, ...]
    scores: ContinuationTable
    """Texts to score after each prompt."""
    unit_rows: int
    special_ids: frozenset[int]
    """Ids among the prompts' tokens that are control tokens."""
    notes: tuple[str, ...]
    """What deserves a look before the run; none of it stops one."""

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


def make_plan(config: "RunConfig") -> Plan:
    """Make the plan of a run.

    Raises ConfigError naming the stimuli that cannot be run: without tokens, over the context, without the span.
    """
    source = open_source(config)
    found = build_set(config)
    parse_special = config.tokenizer.parse_special
    tokenized = tokenize(found.stimuli, source.tokenizer, parse_special=parse_special)
    max_tokens = config.generate.max_tokens if config.generate else 0
    refuse_unfit(tokenized, source.card, max_tokens)
    ordered = [tokenized[i] for i in plan_order([t.tokens for t in tokenized])]
    samples = tuple(PlannedSample(i, t.stimulus, t.tokens, t.offsets, t.span_tokens) for i, t in enumerate(ordered))
    captures = tuple(_plan_capture(capture, samples, source.card) for capture in config.hooks.capture)
    scores = plan_scores(config.score, ordered, source.tokenizer, source.card, parse_special=parse_special)
    unit_rows, units = plan_units([sample.tokens for sample in samples], config.engine.unit_rows, extra_rows(scores))
    notes = [*source.card.notes(), *source.tokenizer.warnings]
    notes += [*notes_on(ordered, source.tokenizer, parse_special=parse_special), *score_notes(config.score, scores)]
    # The last token of all prompts, which notes_on compares, says more than their last character.
    notes += [finding.message for finding in find(found.stimuli, found.dropped) if finding.code != "same_ending"]
    special = special_ids(ordered, source.tokenizer)
    return Plan(config, source, samples, units, captures, scores, unit_rows, special, tuple(notes))


def plan_units(
    prompts: Sequence[Tokens], unit_rows: int | None, extra: Sequence[int] | None = None
) -> tuple[int, tuple[PlannedUnit, ...]]:
    """Cut prompts, in plan order, into units; returns the row limit in use and the units.

    `extra` counts the rows that each prompt's scored texts add.
    """
    extra = extra or [0] * len(prompts)
    fresh = [len(prompt) - (shared_prefix(prompts[i - 1], prompt) if i else 0) for i, prompt in enumerate(prompts)]
    limit = unit_rows or default_unit_rows(sum(fresh) + sum(extra))
    units = []
    for index, (start, end) in enumerate(cut_units(prompts, limit, extra_rows=extra)):
        shared = len(prompts[start]) + sum(fresh[start + 1 : end])
        rows = sum(map(len, prompts[start:end]))
        units.append(PlannedUnit(index, start, end, rows, shared, sum(extra[start:end])))
    return limit, tuple(units)


def resolve_layers(name: str, layers: Any, site: str, n_layers: int) -> tuple[int, ...]:
    """Layers of a capture in ascending order, negatives counted from the end; raises ConfigError out of range."""
    if not SITES[site].per_layer:
        return (NO_LAYER,)
    if layers == "all":
        return tuple(range(n_layers))
    outside = [layer for layer in layers if not -n_layers <= layer < n_layers]
    if outside:
        raise ConfigError(
            f"capture {name!r}: layers {outside} do not exist; "
            f"the model has {n_layers}, counted from 0 to {n_layers - 1} (or -{n_layers} to -1)"
        )
    return tuple(sorted({layer % n_layers for layer in layers}))


def _plan_capture(capture: "CaptureConfig", samples: Sequence[PlannedSample], card: ModelCard) -> PlannedCapture:
    layers = resolve_layers(capture.name, capture.layers, capture.site, card.n_layers)
    positions, missing = [], []
    for sample in samples:
        try:
            positions.append(resolve(capture.position, len(sample.tokens), sample.span_tokens))
        except InputError as error:
            missing.append(f"{sample.stimulus.id!r} ({error})")
    if missing:
        raise refusal(
            f"without the position that capture {capture.name!r} asks for",
            missing,
            "change the capture's position or these stimuli",
        )
    return PlannedCapture(capture.name, capture.site, layers, capture.position.pooled, tuple(positions))
