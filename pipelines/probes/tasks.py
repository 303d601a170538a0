"""What a worker does: all labels, splits and probes on one matrix, with one BLAS thread; results go to one file.

A task depends on nothing but the plan and the run, so its bits do not depend on the number of workers.
"""

import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ember.errors import InputError
from pipelines import placing
from pipelines.errors import RunError
from pipelines.probes.config import NETWORK, StrengthsConfig
from pipelines.probes.design import Design, Matrix
from pipelines.probes.fitting import Task, cross_validate, refit
from pipelines.probes.mdl import Sending, code_lengths
from pipelines.probes.problems import Problem, Stimuli
from pipelines.probes.seen import WHOLE, places
from pipelines.probes.splits import Folds
from pipelines.probes.targets import Codes
from pipelines.probes.texts import character_features, token_features
from pipelines.reading import load

Features = Literal["states", "untrained", "characters", "tokens"]
BASELINES: Final[tuple[Features, ...]] = ("characters", "tokens")
LAST: Final = "last"
"""Position of the baselines that are no single capture's."""
PROBLEMS: Final = "problems.npz"
FEATURES: Final = "features"
"""In results: [2] features that there are, and that were found; of a text the most frequent are kept."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """A matrix of features."""

    features: Features
    capture: str = ""
    site: str = ""
    layer: int = -1
    position: str = ""
    width: int = 0

    @property
    def name(self) -> str:
        """Name of its results' file."""
        if is_text(self):
            return f"{self.features}-{self.capture}-{self.site}" if self.capture else self.features
        prefix = "untrained-" if self.features == "untrained" else ""
        return f"{prefix}{self.capture}-{self.site}-{self.layer}"


def is_text(source: Source) -> bool:
    """Whether its features are of the text alone."""
    return source.features in BASELINES


def text_beside(source: Source, features: Features) -> Source:
    """The baseline that `source` is held against: its capture's own, unless prompt and last token tell all there is.

    That one is shared by captures, and stands beside what is no capture's.
    """
    if not source.capture or source.position in WHOLE:
        return Source(features, position=LAST)
    return Source(features, source.capture, source.site, position=source.position)


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """One matrix to probe."""

    run_dir: str
    folder: str
    """Where problems are read from and results go."""
    source: Source
    probes: tuple[str, ...]
    strengths: tuple[tuple[str, tuple[float, ...]], ...]
    """By probe, the strongest first."""

    @property
    def result(self) -> Path:
        """The file of its results."""
        return Path(self.folder) / f"{self.source.name}.npz"


def make_task(
    run_dir: Path, folder: Path, source: Source, probes: Sequence[str], strengths: StrengthsConfig
) -> ProbeTask:
    """Make the task of a matrix; baselines are told by logistic regression alone."""
    used = ("logistic",) if is_text(source) else tuple(probes)
    listed = tuple((probe, strengths.of(probe)) for probe in dict.fromkeys((*used, "logistic")))
    return ProbeTask(str(run_dir.absolute()), str(folder.absolute()), source, used, listed)


def write_problems(folder: Path, problems: Sequence[Problem], stimuli: Stimuli) -> None:
    """Write what tasks share."""
    arrays: Arrays = {"samples": stimuli.samples}
    told = []
    for i, one in enumerate(problems):
        arrays |= {
            f"{i}.rows": one.task.rows,
            f"{i}.codes": one.task.codes,
            f"{i}.control": one.task.control,
            f"{i}.assigned": one.task.folds.assigned,
        }
        if one.task.folds.within is not None:
            arrays[f"{i}.within"] = one.task.folds.within
        if one.order is not None:
            arrays |= {f"{i}.order": one.order, f"{i}.groups": one.groups[0]}
        first = all(earlier.label != one.label for earlier in problems[:i])
        told.append({"classes": one.task.classes, "folds": one.task.folds.count, "keep": first, "seed": one.task.seed})
    arrays["told"] = np.frombuffer(json.dumps(told).encode(), np.uint8)
    write_arrays(folder / PROBLEMS, arrays)


@dataclass(frozen=True, slots=True)
class _Given:
    task: Task
    sending: Sending | None
    keep: bool
    """Whether weights are kept: once for each label."""


def _read_problems(folder: Path) -> tuple[Codes, list[_Given]]:
    arrays = read_arrays(folder / PROBLEMS)
    given = []
    for i, one in enumerate(json.loads(arrays["told"].tobytes())):
        rows, codes, control, assigned = (arrays[f"{i}.{name}"] for name in ("rows", "codes", "control", "assigned"))
        folds = Folds(assigned, one["folds"], arrays.get(f"{i}.within"))
        task = Task(rows, codes, control, one["classes"], folds, one["seed"])
        sent = f"{i}.order" in arrays
        sending = Sending(arrays[f"{i}.order"], arrays[f"{i}.groups"]) if sent else None
        given.append(_Given(task, sending, one["keep"]))
    return arrays["samples"], given


def run_task(task: ProbeTask) -> str:
    """Probe one matrix and write what came out; returns the name of its source."""
    with threadpool_limits(1):
        samples, given = _read_problems(Path(task.folder))
        try:
            matrix, found = _features(task, samples)
            design = Design(matrix)
        except InputError as error:
            raise InputError(f"{task.source.name}: {error}") from error
        arrays: Arrays = {FEATURES: np.array([min(found, design.width), found])}
        for i, one in enumerate(given):
            arrays |= {f"{i}.{name}": told for name, told in _probe(design, one, task).items()}
        write_arrays(task.result, arrays)
    return task.source.name


def _features(task: ProbeTask, samples: Codes) -> tuple[Matrix, int]:
    """Features [stimuli, width] in the order of the problems' rows, and how many there were to choose from."""
    run, source = load(task.run_dir, partial=True), task.source
    if not is_text(source):
        rows = run.rows(site=source.site, layer=source.layer, capture=source.capture)
        here = np.array(rows["sample_index"].to_pylist(), np.int64)
        matrix = run.matrix(site=source.site, layer=source.layer, capture=source.capture)
        if np.array_equal(here, samples):
            return matrix, source.width
        place = np.argsort(here, kind="stable")
        return matrix[place[np.searchsorted(here[place], samples)]], source.width
    stimuli = run.stimuli
    column = "prompt" if source.features == "characters" else "token_ids"
    index = {sample: row for row, sample in enumerate(stimuli["sample_index"].to_pylist())}
    listed = stimuli[column].to_pylist()
    found = [listed[index[sample]] for sample in samples.tolist()]
    seen = places(run, source.position, samples.tolist()) if source.capture else []
    bag = character_features(found, seen) if source.features == "characters" else token_features(found, seen)
    return bag.counts, bag.found


def _probe(design: Design, given: _Given, task: ProbeTask) -> Arrays:
    out: Arrays = {}
    strengths = dict(task.strengths)
    for probe in task.probes:
        own, control = cross_validate(design, given.task, probe, strengths[probe])
        out |= {
            f"{probe}.predicted": own.predicted.astype(np.int16),
            f"{probe}.control": control.predicted.astype(np.int16),
            f"{probe}.chosen": np.array(own.chosen),
            f"{probe}.converged": np.array([own.converged and control.converged]),
        }
        if given.keep and task.source.features == "states" and probe != NETWORK:
            model, strength = refit(design, given.task, probe, own.chosen)
            weights, bias = model.in_units_of(design)
            kept: Arrays = {"weights": weights.T.astype(np.float32), "bias": bias, "strength": np.array([strength])}
            out |= {f"{probe}.{name}": values for name, values in kept.items()}
    if given.sending is not None:
        targets = [given.task.codes, given.task.control]
        found = code_lengths(design, given.task.rows, targets, given.task.classes, given.sending, strengths["logistic"])
        out["bits"] = np.array(found)
    return out


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write a .npz file, whole or not at all."""
    data = sum(values.nbytes for values in arrays.values())
    staged = path.with_name(f".{path.name}-{os.getpid()}")
    with placing.disk_errors(path.parent, f"cannot write {path.name}", data):
        with staged.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)


def read_arrays(path: Path) -> Arrays:
    """Read a .npz file; raises RunError for one that cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise RunError(f"{path} cannot be read ({error}); delete it and run the same command again") from error


def finished(path: Path) -> bool:
    """Whether a result stands and can be read."""
    if not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as found:
            return found.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False
