"""Cross-validation: predictions for every row by probes that have not seen it, its groups, or its part in choices.

The inner folds of a test set are the other folds of the same partition. So the training set for (test i, compare on j)
is also the one for (test j, compare on i), and half of the fits are spared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pipelines.probes.design import Design, Linear, Model, Rows, scores
from pipelines.probes.lbfgs import Doubles
from pipelines.probes.logistic import COMPARING, FITTING
from pipelines.probes.solvers import FITS
from pipelines.probes.splits import Folds, Key, outside
from pipelines.probes.targets import Codes


@dataclass(frozen=True, slots=True)
class Task:
    """One label under one split, with its control task."""

    rows: Codes
    """Rows of the design."""
    codes: Codes
    control: Codes
    classes: int
    folds: Folds
    seed: int = 0
    """Decides where searches with many minima start."""


@dataclass(slots=True)
class Outcome:
    """What a probe told of one target."""

    predicted: Codes
    """[rows] the class told by the probe that had the row in its test set."""
    chosen: list[float] = field(default_factory=list)
    """Strength of each test set, in the order of `Folds.keys`."""
    converged: bool = True


def cross_validate(design: Design, task: Task, probe: str, strengths: Sequence[float]) -> tuple[Outcome, Outcome]:
    """Probe a label and its control task on the same folds and with the same strengths, chosen for the label."""
    compared = _compare(design, task, probe, strengths) if len(strengths) > 1 else {}
    targets = [task.codes, task.control]
    own, control = outcomes = tuple(Outcome(np.full(len(task.rows), -1, np.int64)) for _ in targets)
    for key in task.folds.keys:
        test = task.folds.test_rows(key)
        strength = strengths[_best(compared.get(key, []))]
        fits = _fit(design, task, probe, task.folds.training_rows(outside(key)), targets, [strength])
        for outcome, (model,) in zip(outcomes, fits, strict=True):
            outcome.predicted[test] = scores(design.x[task.rows[test]], [model])[0].argmax(axis=1)
            outcome.chosen.append(strength)
            outcome.converged &= model.converged
    return own, control


def refit(design: Design, task: Task, probe: str, chosen: Sequence[float]) -> tuple[Linear, float]:
    """Fit a linear probe on all rows with the strength chosen most often (of equals the strongest); return it too."""
    strongest_first = sorted(set(chosen), reverse=probe == "ridge")
    strength = max(strongest_first, key=list(chosen).count)
    everything = np.arange(len(task.rows))
    model = _fit(design, task, probe, everything, [task.codes], [strength])[0][0]
    assert isinstance(model, Linear), "only linear probes have directions"
    return model, strength


def _fit(
    design: Design,
    task: Task,
    probe: str,
    rows: Rows,
    targets: Sequence[Codes],
    strengths: Sequence[float],
    tolerance: float = FITTING,
) -> Sequence[Sequence[Model]]:
    training = design.training(task.rows[rows], task.seed)
    return FITS[probe](training, [codes[rows] for codes in targets], task.classes, strengths, tolerance)


Compared = dict[Key, list[Doubles]]
"""For a test set, the accuracies [strengths] on each set that strengths are compared on."""


def _compare(design: Design, task: Task, probe: str, strengths: Sequence[float]) -> Compared:
    learn: dict[object, Rows] = {}
    served: dict[object, list[tuple[Key, int, Rows]]] = {}
    for key in task.folds.keys:
        for place, inner in enumerate(task.folds.inner(key)):
            learn[inner.name] = inner.learn
            served.setdefault(inner.name, []).append((key, place, inner.judge))
    found: dict[Key, dict[int, Doubles]] = {}
    for name, rows in learn.items():
        models = _fit(design, task, probe, rows, [task.codes], strengths, COMPARING)[0]
        for key, place, judge in served[name]:
            found.setdefault(key, {})[place] = _accuracies(design, task, judge, models)
    return {key: [by_place[place] for place in sorted(by_place)] for key, by_place in found.items()}


def _accuracies(design: Design, task: Task, rows: Rows, models: Sequence[Model]) -> Doubles:
    told = scores(design.x[task.rows[rows]], models)
    return np.array([np.mean(one.argmax(axis=1) == task.codes[rows]) for one in told])


def _best(accuracies: list[Doubles]) -> int:
    """Place of the strength with the best mean accuracy; of equals the first, which is the strongest."""
    return int(np.mean(accuracies, axis=0).argmax()) if accuracies else 0
