"""From a plan and a run to problems: stimuli, labels, folds and controls, all settled before anything is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ember.errors import InputError
from ember.sites import SITES
from pipelines import tables
from pipelines.config.selectors import LayerRange
from pipelines.errors import ConfigError
from pipelines.manifest import CaptureRecord
from pipelines.probes.config import NETWORK, LabelConfig, ProbeConfig, Split, split_name
from pipelines.probes.fitting import Task
from pipelines.probes.splits import Grouping, SplitRefused, make_folds, outside
from pipelines.probes.targets import Codes, Target, control_codes, encode, generator, make_target
from pipelines.reading import Run
from pipelines.rows import LABEL_PREFIX
from pipelines.settings import closest

TEMPLATE: Final = "template"
FOLDS: Final = 5
CROSSED_FOLDS: Final = 3
MOST_CLASSES: Final = 1000
NETWORK_ROWS: Final = 10
"""Rows of a class, on average, that each training fold of a probe with a hidden layer must have."""

Values = list[str | None]


@dataclass(frozen=True, slots=True)
class Stimuli:
    """What probes need to know of the stimuli that they use."""

    samples: Codes
    """[stimuli] sample_index."""
    fields: dict[str, Values]
    """Labels, and `template`."""
    labels: tuple[str, ...]
    prompts: list[str]
    token_ids: list[list[int]]
    reveals: list[list[str]]
    words: list[str]
    """What the control task gives random labels to."""

    def prompt_groups(self, rows: Codes) -> Grouping:
        """Group rows whose prompts have the same tokens; named after the first prompt's text."""
        first: dict[tuple[int, ...], int] = {}
        names: list[str] = []
        codes = []
        for row in rows.tolist():
            ids = tuple(self.token_ids[row])
            if ids not in first:
                first[ids] = len(names)
                names.append(self.prompts[row])
            codes.append(first[ids])
        return Grouping("prompt", tuple(names), np.array(codes, np.int64))


@dataclass(frozen=True, slots=True)
class Problem:
    """One label under one split."""

    label: str
    split: Split
    classes: tuple[str, ...]
    task: Task
    """Rows are places in `Stimuli`."""
    groups: tuple[Codes, ...]
    """[ways][rows] groups that are held out whole, and drawn for intervals."""
    order: Codes | None
    """The order in which labels are sent for the code length; None where two fields are held out."""
    revealed: float
    """Share of rows whose prompt is declared to reveal the label."""

    @property
    def name(self) -> str:
        """Label and split in a few words."""
        return f"{self.label}, {split_name(self.split)}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A label and split that were not probed."""

    label: str
    split: str
    reason: str


def choose_captures(config: ProbeConfig, run: Run) -> list[tuple[CaptureRecord, tuple[int, ...]]]:
    """Return captures and their layers; raises ConfigError naming what the run does not have."""
    named = [c for c in run.captures if config.captures is None or c.name in config.captures]
    if absent := sorted(set(config.captures or ()) - {c.name for c in run.captures}):
        near = closest(absent[0], [c.name for c in run.captures])
        raise ConfigError(f"captures: found {absent[0]!r}; {run.directory} has {_captures(run)}{near}")
    kept = [c for c in named if _wanted(config, c) and _one_row_each(config, run, c)]
    chosen = [(c, layers) for c in kept if (layers := _layers(config, run, c))]
    if not chosen:
        raise ConfigError(
            f"nothing to probe: no capture with one row for each stimulus is left; {run.directory} has {_captures(run)}"
        )
    return chosen


def _captures(run: Run) -> str:
    return "; ".join(f"{c.name!r} ({c.site}, {c.position})" for c in run.captures) or "no captures"


def _wanted(config: ProbeConfig, capture: CaptureRecord) -> bool:
    if config.sites is not None:
        return capture.site in config.sites
    return config.captures is not None or capture.site != "after_logits"


def _one_row_each(config: ProbeConfig, run: Run, capture: CaptureRecord) -> bool:
    samples = capture_samples(run, capture)
    if len(samples) and len(np.unique(samples)) == len(samples):
        return True
    if config.captures is not None:
        raise ConfigError(
            f"captures: {capture.name!r} has {len(samples)} rows for {len(np.unique(samples))} stimuli; a probe needs "
            "one row for each: capture one position, or the mean"
        )
    return False


def capture_samples(run: Run, capture: CaptureRecord) -> Codes:
    """Samples of a capture's rows of prompts."""
    rows = run.rows(site=capture.site, layer=capture.layers[0], capture=capture.name)
    return tables.column(rows, "sample_index").astype(np.int64)


def _layers(config: ProbeConfig, run: Run, capture: CaptureRecord) -> tuple[int, ...]:
    if config.layers == "all" or not SITES[capture.site].per_layer:
        return capture.layers
    total = int(run.manifest.origin.model.get("n_layers", 0))
    if isinstance(config.layers, LayerRange):
        first, last = (_counted(int(str(n)), total) for n in (config.layers.first, config.layers.last))
        return tuple(layer for layer in capture.layers if first <= layer <= last)
    wanted = {_counted(layer, total) for layer in config.layers}
    if absent := sorted(wanted - set(capture.layers)):
        raise ConfigError(f"layers: {absent[0]} of {capture.name!r} was not captured; there are {capture.layers}")
    return tuple(layer for layer in capture.layers if layer in wanted)


def _counted(layer: int, total: int) -> int:
    return layer + total if layer < 0 else layer


def read_stimuli(config: ProbeConfig, run: Run, captures: Sequence[CaptureRecord]) -> Stimuli:
    """Stimuli that `where` selects and all captures have; raises ConfigError for unknown fields and values."""
    table = run.stimuli
    columns: dict[str, list[Any]] = {name: table[name].to_pylist() for name in table.column_names}
    labels = tuple(name.removeprefix(LABEL_PREFIX) for name in columns if name.startswith(LABEL_PREFIX))
    fields: dict[str, Values] = {name: columns[LABEL_PREFIX + name] for name in labels}
    fields.setdefault(TEMPLATE, [name or None for name in columns["template"]])
    samples = np.array(columns["sample_index"], np.int64)
    kept = np.ones(len(samples), np.bool_)
    for name, values in config.where:
        kept &= np.array(_selected(fields, name, values), np.bool_)
    for capture in captures:
        kept &= np.isin(samples, capture_samples(run, capture))
    rows = np.flatnonzero(kept).tolist()
    if not rows:
        raise ConfigError("where: no stimulus is selected that all captures have; see the run's stimuli.parquet")
    pick: Callable[[list[Any]], list[Any]] = lambda column: [column[row] for row in rows]  # noqa: E731
    control = _field(fields, config.control, "control") if config.control else _words(columns)
    return Stimuli(
        samples[kept],
        {name: pick(values) for name, values in fields.items()},
        labels,
        pick(columns["prompt"]),
        pick(columns["token_ids"]),
        pick(columns["reveals"]),
        [str(word) for word in pick(control)],
    )


def _selected(fields: dict[str, Values], name: str, wanted: Sequence[str]) -> list[bool]:
    """For each stimulus whether it has one of the `wanted` values; raises ConfigError for one that none has."""
    found = _field(fields, name, "where")
    there = sorted({value for value in found if value is not None})
    if unknown := [value for value in wanted if value not in there]:
        near = closest(unknown[0], there)
        raise ConfigError(f"where: found {unknown[0]!r}, which no stimulus has as {name}{near}")
    return [value in wanted for value in found]


def _words(columns: dict[str, list[Any]]) -> list[Any]:
    """The expected text of each stimulus, else its target, else its prompt."""
    listed = zip(columns["has_expected"], columns["expected"], columns["target_text"], columns["prompt"], strict=True)
    return [expected if has and expected else target or prompt for has, expected, target, prompt in listed]


def _field(fields: dict[str, Values], name: str, key: str) -> Values:
    if name not in fields:
        near = closest(name, list(fields))
        raise ConfigError(f"{key}: found {name!r}; the run's stimuli have {', '.join(fields)}{near}")
    return fields[name]


def make_problems(config: ProbeConfig, stimuli: Stimuli) -> tuple[list[Problem], list[Refusal]]:
    """Settle every label and split. What was not asked for by name is listed where it is refused.

    Raises ConfigError for a label's own splits that cannot be made, and if nothing is left.
    """
    problems: list[Problem] = []
    refusals: list[Refusal] = []
    labels = config.labels or tuple(LabelConfig(label=name) for name in stimuli.labels)
    for one in labels:
        values = _field(stimuli.fields, one.label, "labels")
        there = sorted({value for value in values if value is not None})
        if unknown := sorted(set(one.exclude) - set(there)):
            near = closest(unknown[0], there)
            raise ConfigError(f"labels: exclude: found {unknown[0]!r}, which no stimulus has as {one.label}{near}")
        for split in one.splits or config.splits or _splits_of(stimuli):
            try:
                problems.append(_problem(config, stimuli, make_target(one.label, values, one.exclude), split))
            except SplitRefused as refused:
                refusals.append(Refusal(one.label, split_name(split), str(refused)))
                if one.splits:
                    raise ConfigError(f"labels: {one.label}, {split_name(split)}: {refused}") from None
    if not problems:
        told = "\n  ".join(f"{one.label}, {one.split}: {one.reason}" for one in refusals)
        raise ConfigError(f"no label can be probed under any split:\n  {told or 'the stimuli have no labels'}")
    return problems, refusals


def _splits_of(stimuli: Stimuli) -> list[Split]:
    """Random, each field held out, and root and pattern together.

    Left to plans are fields that another one decides (a gloss or a class of roots, where there are roots), and fields
    that are another for every stimulus.
    """
    partitions: dict[str, list[int]] = {}
    for name, values in stimuli.fields.items():
        codes = encode([str(value) for value in values])[1].tolist()
        numbered = {code: i for i, code in enumerate(dict.fromkeys(codes))}
        if 2 <= len(numbered) < len(codes) and (found := [numbered[code] for code in codes]) not in partitions.values():
            partitions[name] = found
    free = [
        name
        for name, mine in partitions.items()
        if not any(_decides(other, mine) for key, other in partitions.items() if key != name)
    ]
    crossed: list[Split] = [("root", "pattern")] if {"root", "pattern"} <= set(free) else []
    return [(), *((name,) for name in free), *crossed]


def _decides(one: list[int], other: list[int]) -> bool:
    """Whether groups of `one` lie inside groups of `other`."""
    return len(set(zip(one, other, strict=True))) == len(set(one))


def _problem(config: ProbeConfig, stimuli: Stimuli, target: Target, split: Split) -> Problem:
    for name in split:
        _field(stimuli.fields, name, "splits")
    target = _with_groups(target, stimuli, split)
    if len(target.classes) < 2:
        raise SplitRefused(f"a probe needs two classes; found {len(target.classes)} among {len(target.rows)} stimuli")
    if len(target.classes) > min(MOST_CLASSES, len(target.rows) // 2):
        raise SplitRefused(
            f"{len(target.classes)} classes for {len(target.rows)} stimuli; expected at least two stimuli of a class "
            f"on average, and at most {MOST_CLASSES} classes"
        )
    prompts = stimuli.prompt_groups(target.rows)
    groupings = [_grouping(stimuli, name, target.rows) for name in split] or [prompts]
    count = _fold_count(config, groupings)
    folds = make_folds(target.codes, target.classes, groupings, prompts, count=count, seed=config.seed)
    types = encode([stimuli.words[row] for row in target.rows.tolist()])[1]
    control = control_codes(target.codes, types, generator(config.seed, "control", target.label))
    task = Task(target.rows, target.codes, control, len(target.classes), folds, config.seed)
    if NETWORK in config.probes:
        _check_network(task, f"{target.label}, {split_name(split)}")
    revealed = np.mean([target.label in stimuli.reveals[row] for row in target.rows.tolist()])
    groups = tuple(grouping.codes for grouping in groupings)
    return Problem(target.label, split, target.classes, task, groups, _order(config, target, groups), float(revealed))


def _check_network(task: Task, name: str) -> None:
    """Refuse to fit a network to so few rows that it could only learn them by heart; raises ConfigError."""
    fewest = min(len(task.folds.training_rows(outside(key))) for key in task.folds.keys)
    if fewest < NETWORK_ROWS * task.classes:
        raise ConfigError(
            f"probes: mlp: {name}: a training fold has {fewest} rows of {task.classes} classes; a network needs at "
            f"least {NETWORK_ROWS} of a class on average: leave mlp out, or use more stimuli, other splits or labels"
        )


def _with_groups(target: Target, stimuli: Stimuli, split: Split) -> Target:
    """Leave out stimuli that are in no group."""
    kept = np.array([all(stimuli.fields[name][row] is not None for name in split) for row in target.rows.tolist()])
    if kept.all():
        return target
    rows = target.rows[kept]
    left = make_target(target.label, [target.classes[code] for code in target.codes[kept].tolist()])
    return Target(target.label, left.classes, rows, left.codes)


def _grouping(stimuli: Stimuli, name: str, rows: Codes) -> Grouping:
    names, codes = encode([str(stimuli.fields[name][row]) for row in rows.tolist()])
    return Grouping(name, names, codes)


def _fold_count(config: ProbeConfig, groupings: Sequence[Grouping]) -> int:
    if config.folds is not None:
        return config.folds
    if len(groupings) > 1:
        return CROSSED_FOLDS
    return max(2, min(FOLDS, len(np.unique(groupings[0].codes))))


def _order(config: ProbeConfig, target: Target, groups: Sequence[Codes]) -> Codes | None:
    """Send whole groups, one after the other, in a random order."""
    if len(groups) > 1:
        return None
    random = generator(config.seed, "order", target.label)
    names, group = np.unique(groups[0], return_inverse=True)
    rank = random.permutation(len(names))[group]
    return np.lexsort((random.permutation(len(group)), rank)).astype(np.int64)


def check_size(features: int, rows: int) -> None:
    """Refuse more numbers than a worker could hold."""
    if features * rows > 1 << 31:
        raise InputError(f"{rows} stimuli of {features} numbers are more than a probe can hold; use `where`")
