"""From the interventions of a configuration to tables: who is acted on, in which layers, where, and with what.

Whatever cannot be is refused here, in the client and by the stimulus's id, never in a worker.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ember.card import ModelCard
from ember.errors import InputError
from ember.sites import NO_LAYER, SITES, moment
from pipelines.captures import PlannedCapture
from pipelines.choices import Sample, for_each, label_of, layers_of, position_of, selected, tokens_at
from pipelines.config.hooks import SAME, CaptureSource, InterveneConfig, RunSource, VectorSource
from pipelines.config.selectors import layer_labels, read_label
from pipelines.errors import ConfigError
from pipelines.hook_tables import CaptureReference, InterventionTable, Ragged, RowsOfRun, Source, Vectors
from pipelines.manifest import CaptureRecord
from pipelines.sources import SourceRun, load_vector, open_run

"""Sites in firing order."""


@dataclass(frozen=True, slots=True)
class Acted:
    """Where one intervention acts, for each sample that it acts on."""

    layers: dict[int, tuple[int, ...]]
    positions: dict[int, tuple[int, ...]]
    steps: dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiles the interventions of one plan."""

    samples: Sequence[Sample]
    card: ModelCard
    captures: Sequence[PlannedCapture]
    max_tokens: int
    model_sha256: Callable[[], str]
    runs: dict[str, SourceRun] = field(default_factory=dict)
    """Finished runs that serve as sources, each verified once."""

    def table(self, place: int, asked: InterveneConfig) -> InterventionTable:
        """Compile the intervention at `place` of the list. Raises ConfigError, VerifyError."""
        key = f"hooks.intervene.{place}"
        on = selected(asked.where, self.samples, key)
        acted = self._acted(key, asked, on)
        source = self._source(key, asked, acted)
        samples = range(len(self.samples))
        return InterventionTable(
            "replace" if asked.operation == "restore" else asked.operation,
            asked.site,
            asked.factor,
            Ragged.of([acted.layers.get(i, ()) for i in samples]),
            Ragged.of([acted.positions.get(i, ()) for i in samples]),
            Ragged.of([acted.steps.get(i, ()) for i in samples]),
            source,
        )

    def _acted(self, key: str, asked: InterveneConfig, on: Sequence[bool]) -> Acted:
        layers = for_each(
            self.samples,
            on,
            lambda i: layers_of(asked.layers, asked.site, self.card.n_layers, self.samples[i]),
            f"without the layers that {key} asks for",
            "change its layers, or the labels that give them",
        )
        where = for_each(
            self.samples,
            on,
            lambda i: self._places(asked, self.samples[i]),
            f"without the position that {key} asks for",
            "change its position or these stimuli, or leave them out with `where`",
        )
        positions = {i: found for i, (found, _) in where.items()}
        return Acted(layers, positions, {i: steps for i, (_, steps) in where.items()})

    def _places(self, asked: InterveneConfig, sample: Sample) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token indices and generated steps."""
        position = position_of(asked.position, sample)
        if position.step is None:
            return tokens_at(position, sample), ()
        if position.step >= self.max_tokens - 1:
            raise InputError(f"step {position.step} of {self.max_tokens - 1}")
        return (), (position.step,)

    def _source(self, key: str, asked: InterveneConfig, acted: Acted) -> Source:
        if isinstance(asked.source, VectorSource):
            return self._vectors(f"{key}.source.vector", asked, asked.source)
        if isinstance(asked.source, CaptureSource):
            return self._same_run(f"{key}.source.capture", asked, asked.source, acted)
        if isinstance(asked.source, RunSource):
            return self._other_run(f"{key}.source.run", asked, asked.source, acted)
        return None

    def _vectors(self, key: str, asked: InterveneConfig, source: VectorSource) -> Vectors:
        found = load_vector(Path(source.vector))
        rows, width = (1, *found.values.shape)[-2:]
        needed = self._width(asked.site)
        if width != needed:
            raise ConfigError(f"{key}: {source.vector} has {width} numbers in a row, {asked.site} has {needed}")
        if found.values.ndim == 1:
            return Vectors(found.values, (), found.sha256)
        listed = asked.layers is None or not [*layer_labels(asked.layers)]
        acted = layers_of(asked.layers, asked.site, self.card.n_layers, self.samples[0]) if listed else ()
        for layers in (tuple(range(self.card.n_layers)), acted):
            if rows == len(layers) and asked.layers is not None:
                return Vectors(found.values, layers, found.sha256)
        raise ConfigError(
            f"{key}: {source.vector} has {rows} rows; expected one vector, or a row for each of the "
            f"{self.card.n_layers} layers of the model" + (f" or of the {len(acted)} acted on" if acted else "")
        )

    def _width(self, site: str) -> int:
        return self.card.vocab_size if SITES[site].width == "vocab" else self.card.hidden_size

    def _same_run(self, key: str, asked: InterveneConfig, source: CaptureSource, acted: Acted) -> CaptureReference:
        names = [capture.name for capture in self.captures]
        if source.capture not in names:
            raise ConfigError(f"{key}: no capture is called {source.capture!r}; there are {', '.join(names) or 'none'}")
        place = names.index(source.capture)
        capture = self.captures[place]
        if capture.step is not None:
            raise ConfigError(f"{key}: {capture.name!r} is taken at generated steps, after the prompt; use another one")
        if self._width(capture.site) != self._width(asked.site):
            raise ConfigError(f"{key}: rows of {capture.site} are not as wide as those of {asked.site}")
        layer = _source_layer(key, source.layer, capture, self.card.n_layers)
        self._check_earlier(key, asked, capture, layer, acted)
        for_each(
            self.samples,
            [i in acted.positions for i in range(len(self.samples))],
            lambda i: _check_count(capture, i, len(acted.positions[i])),
            f"for which capture {capture.name!r}, the source of {key}, has no fitting rows",
            "capture one position, or those that are acted on",
        )
        return CaptureReference(place, capture.name, layer)

    def _check_earlier(
        self, key: str, asked: InterveneConfig, capture: PlannedCapture, layer: int | None, acted: Acted
    ) -> None:
        for here in sorted({here for layers in acted.layers.values() for here in layers}):
            there = here if layer is None else layer
            if there not in capture.layers:
                raise ConfigError(f"{key}: capture {capture.name!r} has no layer {there}; it has {[*capture.layers]}")
            first, second = moment(capture.site, there), moment(asked.site, here)
            if first > second or (first == second and capture.observe != "before"):
                raise ConfigError(
                    f"{key}: capture {capture.name!r} ({_at(there, capture.site)}, observe {capture.observe}) is not "
                    f"taken before the intervention at {_at(here, asked.site)}; take it earlier, or from a finished run"
                )

    def _other_run(self, key: str, asked: InterveneConfig, source: RunSource, acted: Acted) -> RowsOfRun:
        if source.run not in self.runs:
            self.runs[source.run] = open_run(Path(source.run))
        run = self.runs[source.run]
        try:
            capture = run.capture(source.capture, asked.site)
            if asked.operation == "restore":
                self._check_restore(asked, capture, run)
            layer = _run_layer(source, capture, acted, run.n_layers)
        except InputError as error:
            raise ConfigError(f"{key}: {error}") from error
        if capture.width != (needed := self._width(asked.site)):
            said = f"rows of {capture.name!r} have {capture.width} numbers, {asked.site} has {needed}"
            raise ConfigError(f"{key}: {said}")
        found = for_each(
            self.samples,
            [i in acted.positions for i in range(len(self.samples))],
            lambda i: self._rows(run, source, capture, i, acted.positions[i]),
            f"without the rows that {key} asks for",
            "change the source, or leave these stimuli out with `where`",
        )
        samples = range(len(self.samples))
        parts, rows = (Ragged.of([found.get(i, ((), ()))[k] for i in samples]) for k in (0, 1))
        return RowsOfRun(run.reference(capture), layer, parts, rows)

    def _check_restore(self, asked: InterveneConfig, capture: CaptureRecord, run: SourceRun) -> None:
        if capture.site != asked.site:
            raise InputError(f"restore acts at {asked.site}, but {capture.name!r} was taken at {capture.site}")
        if run.manifest.inputs.model_sha256 != self.model_sha256():
            raise InputError(
                f"{run.directory} was made with another model, so there is nothing to put back; "
                "use replace if that is meant"
            )

    def _rows(
        self, run: SourceRun, source: RunSource, capture: CaptureRecord, i: int, at: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        sample = self.samples[i]
        label = read_label(source.stimulus)
        stimulus = label_of(label, sample) if label else source.stimulus
        stimulus = sample.stimulus.id if stimulus == SAME else stimulus
        wanted = None if source.position == SAME else position_of(source.position, sample)
        return run.places(capture, stimulus, wanted, at)


def _at(layer: int, site: str) -> str:
    return site if layer == NO_LAYER else f"{site} of layer {layer}"


def _source_layer(key: str, layer: int | None, capture: PlannedCapture, n_layers: int) -> int | None:
    """Layer of a capture that serves as source; None: the layer acted on."""
    if not SITES[capture.site].per_layer:
        return NO_LAYER
    if layer is None:
        return None
    if not -n_layers <= layer < n_layers:
        raise ConfigError(f"{key}: layer {layer} does not exist: the model has {n_layers}, from 0 to {n_layers - 1}")
    return layer % n_layers


def _run_layer(source: RunSource, capture: CaptureRecord, acted: Acted, n_layers: int) -> int | None:
    """Layer of a finished run's capture that serves as source; None: the layer acted on. Raises InputError."""
    if capture.layers == (NO_LAYER,):
        return NO_LAYER
    asked = None if source.layer == SAME else int(source.layer)
    if asked is None:
        needed = {layer for found in acted.layers.values() for layer in found}
    else:
        needed = {asked + n_layers if asked < 0 else asked}
    absent = sorted(needed - {*capture.layers})
    if absent:
        raise InputError(f"capture {capture.name!r} has no layer {absent[0]}; it has {[*capture.layers]}")
    return None if asked is None else needed.pop()


def _check_count(capture: PlannedCapture, sample: int, acted: int) -> None:
    there = capture.rows_of(sample, sample + 1)
    if there not in (1, acted):
        raise InputError(f"{there} rows for {acted} positions")
