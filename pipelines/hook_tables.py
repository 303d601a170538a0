"""Interventions and experiments of a run as the plan's file holds them: arrays over all samples.

A leaf: what workers read. Prompts of one unit may be acted on in different layers; the engine then gets one operation
for each choice of layers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from ember.work import AttentionWork, Floats, InterventionWork, Operation

Ints = NDArray[np.int32]
Starts = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Ragged(Sequence[tuple[int, ...]]):
    """A list of integers for each sample, one after another."""

    values: Ints
    starts: Starts
    """[samples + 1] where each sample's list starts."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | Ints]) -> "Ragged":
        """Join lists."""
        starts = np.zeros(len(rows) + 1, np.int64)
        for sample, row in enumerate(rows):
            starts[sample + 1] = starts[sample] + len(row)
        values = np.empty(starts[-1], np.int32)
        for start, row in zip(starts.tolist(), rows, strict=False):
            values[start : start + len(row)] = row
        return cls(values, starts)

    def __len__(self) -> int:
        """Count the samples."""
        return len(self.starts) - 1

    @overload
    def __getitem__(self, at: int) -> tuple[int, ...]: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[tuple[int, ...], ...]: ...
    def __getitem__(self, at: int | slice) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
        """List of one sample, or those of some."""
        if isinstance(at, slice):
            return tuple(self[sample] for sample in range(*at.indices(len(self))))
        if not 0 <= at < len(self):
            raise IndexError(f"{at} of {len(self)}")
        return tuple(self.values[self.starts[at] : self.starts[at + 1]].tolist())


@dataclass(frozen=True, slots=True)
class RunReference:
    """A capture of a finished run, as workers find it again."""

    directory: str
    semantic_hash: str
    input_hash: str
    model_sha256: str
    capture: str
    site: str
    parts: tuple[tuple[str, str], ...]
    """Path of each part, relative to the directory, and its sha256."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """What a vector file holds."""

    values: Floats
    """[width], or [layers, width]."""
    layers: tuple[int, ...]
    """Layer of each row; empty for one vector in all layers."""
    sha256: str
    """Of the file."""

    def at(self, layers: Sequence[int]) -> Floats:
        """Return [width], or the rows of `layers`."""
        if not self.layers:
            return self.values
        return np.ascontiguousarray(self.values[[self.layers.index(layer) for layer in layers]])


@dataclass(frozen=True, slots=True)
class CaptureReference:
    """A capture of the same run, by its place among the captures."""

    capture: int
    name: str
    layer: int | None
    """None: the layer acted on."""


@dataclass(frozen=True, slots=True)
class RowsOfRun:
    """Rows of a finished run, one for each position acted on."""

    run: RunReference
    layer: int | None
    """None: the layer acted on."""
    parts: Ragged
    """For each sample, the part of each row, as a place in `run.parts`."""
    rows: Ragged
    """For each sample, the place of each row among those of its part, capture and layer."""


Source = Vectors | CaptureReference | RowsOfRun | None
ReadRows = Callable[[RunReference, Sequence[int], Sequence[int], Sequence[int]], Floats]
"""Reads rows (of parts, at layers) of a finished run: `pipelines.sources.read_rows`."""


def no_rows(run: RunReference, layers: Sequence[int], parts: Sequence[int], rows: Sequence[int]) -> Floats:
    """Read nothing: for plans without rows of finished runs."""
    raise AssertionError(f"rows of {run.directory} were not expected")


@dataclass(frozen=True, slots=True)
class InterventionTable:
    """One intervention."""

    operation: Operation
    site: str
    strength: float
    layers: Ragged
    """Layers it acts on, ascending; none for samples that it leaves alone."""
    positions: Ragged
    """Token indices it acts on."""
    steps: Ragged
    """Generated steps it acts on; ALL_STEPS for every one."""
    source: Source = None

    def works(self, start: int, end: int, read: ReadRows) -> list[InterventionWork]:
        """What the engine is to do for samples [start, end): one operation for each choice of layers among them."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for sample in range(start, end):
            if layers := self.layers[sample]:
                groups.setdefault(layers, []).append(sample)
        return [self._work(layers, members, range(start, end), read) for layers, members in sorted(groups.items())]

    def _work(self, layers: tuple[int, ...], members: list[int], samples: range, read: ReadRows) -> InterventionWork:
        mine = set(members)
        vector = rows = capture = capture_layer = None
        if isinstance(self.source, Vectors):
            vector = self.source.at(layers)
        elif isinstance(self.source, CaptureReference):
            capture, capture_layer = self.source.capture, self.source.layer
        elif isinstance(self.source, RowsOfRun):
            rows = _read(self.source, layers, members, read)
        return InterventionWork(
            operation=self.operation,
            site=self.site,
            layers=layers,
            positions=tuple(self.positions[i] if i in mine else () for i in samples),
            steps=tuple(self.steps[i] if i in mine else () for i in samples) if len(self.steps.values) else (),
            strength=self.strength,
            vector=vector,
            rows=rows,
            capture=capture,
            capture_layer=capture_layer,
        )

    def rows_read(self, start: int, end: int) -> int:
        """Rows of finished runs that samples [start, end) take, over all layers."""
        if not isinstance(self.source, RowsOfRun):
            return 0
        return sum(len(self.layers[i]) * len(self.positions[i]) for i in range(start, end))

    @property
    def changes_nothing(self) -> bool:
        """Whether the strength makes the operation void."""
        return InterventionWork(self.operation, self.site, (), (), strength=self.strength).changes_nothing

    def writes(self, sample: int) -> tuple[int, ...]:
        """Token indices of a sample whose states it changes."""
        return () if self.changes_nothing else self.positions[sample]


def _read(source: RowsOfRun, layers: tuple[int, ...], members: Sequence[int], read: ReadRows) -> Floats:
    parts = [part for sample in members for part in source.parts[sample]]
    rows = [row for sample in members for row in source.rows[sample]]
    if source.layer is None:
        return read(source.run, layers, parts, rows)
    return np.repeat(read(source.run, (source.layer,), parts, rows), len(layers), axis=0)


@dataclass(frozen=True, slots=True)
class AttentionTable:
    """Attention weights of some query positions."""

    name: str
    layers: tuple[int, ...]
    positions: Ragged

    def work(self, samples: range) -> AttentionWork:
        """What the engine is to keep of a unit."""
        return AttentionWork(self.layers, tuple(self.positions[i] for i in samples))


@dataclass(frozen=True, slots=True)
class ExperimentTable:
    """One experiment; its fields are those of `ember.hooks.loading.ExperimentFactory`, and the samples it runs on."""

    spec: str
    options: dict[str, Any]
    name: str
    mutates: bool
    source_sha256: str
    on: NDArray[np.bool_]
    """[samples]"""

    @property
    def shown(self) -> str:
        """The experiment without where its file lies."""
        return self.spec.rpartition("/")[2]


_RAGGED: Final = ("layers", "positions", "steps")


@dataclass(frozen=True, slots=True)
class HookTables:
    """Everything beside captures that a hook plan has."""

    interventions: tuple[InterventionTable, ...] = ()
    experiments: tuple[ExperimentTable, ...] = ()
    attention: tuple[AttentionTable, ...] = ()


def encode(tables: HookTables) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the plain data that `decode` takes."""
    arrays: dict[str, NDArray[Any]] = {}
    told: dict[str, Any] = {"interventions": [], "experiments": [], "attention": []}
    for i, attention in enumerate(tables.attention):
        _put(arrays, f"attention{i}", attention.positions)
        told["attention"].append({"name": attention.name, "layers": attention.layers})
    for i, one in enumerate(tables.interventions):
        for name in _RAGGED:
            _put(arrays, f"act{i}_{name}", getattr(one, name))
        source = _encode_source(arrays, f"act{i}", one.source)
        told["interventions"].append(
            {"operation": one.operation, "site": one.site, "strength": one.strength, "source": source}
        )
    for i, experiment in enumerate(tables.experiments):
        arrays[f"experiment{i}"] = experiment.on
        names = ("spec", "options", "name", "mutates", "source_sha256")
        told["experiments"].append({name: getattr(experiment, name) for name in names})
    return arrays, told


def decode(arrays: Arrays, told: Mapping[str, Any]) -> HookTables:
    """Take interventions, experiments and attention out of the plan's file."""
    acts = tuple(
        InterventionTable(
            one["operation"],
            one["site"],
            one["strength"],
            _get(arrays, f"act{i}_layers"),
            _get(arrays, f"act{i}_positions"),
            _get(arrays, f"act{i}_steps"),
            _decode_source(arrays, f"act{i}", one["source"]),
        )
        for i, one in enumerate(told["interventions"])
    )
    experiments = tuple(
        ExperimentTable(**one, on=arrays[f"experiment{i}"]) for i, one in enumerate(told["experiments"])
    )
    attention = tuple(
        AttentionTable(one["name"], tuple(one["layers"]), _get(arrays, f"attention{i}"))
        for i, one in enumerate(told["attention"])
    )
    return HookTables(acts, experiments, attention)


def _encode_source(arrays: dict[str, NDArray[Any]], name: str, source: Source) -> dict[str, Any] | None:
    if source is None:
        return None
    if isinstance(source, Vectors):
        arrays[f"{name}_vector"] = source.values
        return {"kind": "vector", "layers": source.layers, "sha256": source.sha256}
    if isinstance(source, CaptureReference):
        return {"kind": "capture", "capture": source.capture, "name": source.name, "layer": source.layer}
    _put(arrays, f"{name}_parts", source.parts)
    _put(arrays, f"{name}_rows", source.rows)
    run = source.run
    names = ("directory", "semantic_hash", "input_hash", "model_sha256", "capture", "site", "parts")
    return {"kind": "run", "layer": source.layer, "run": {key: getattr(run, key) for key in names}}


def _decode_source(arrays: Arrays, name: str, told: Mapping[str, Any] | None) -> Source:
    if told is None:
        return None
    if told["kind"] == "vector":
        return Vectors(np.array(arrays[f"{name}_vector"]), tuple(told["layers"]), told["sha256"])
    if told["kind"] == "capture":
        return CaptureReference(told["capture"], told["name"], told["layer"])
    run = RunReference(**{**told["run"], "parts": tuple((path, sha256) for path, sha256 in told["run"]["parts"])})
    return RowsOfRun(run, told["layer"], _get(arrays, f"{name}_parts"), _get(arrays, f"{name}_rows"))


def _put(arrays: dict[str, NDArray[Any]], name: str, ragged: Ragged) -> None:
    arrays[name], arrays[f"{name}_starts"] = ragged.values, ragged.starts


def _get(arrays: Arrays, name: str) -> Ragged:
    return Ragged(arrays[name], arrays[f"{name}_starts"])
