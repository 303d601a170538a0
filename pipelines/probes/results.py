"""What came out: one record for each label, split, probe and matrix, with its controls and intervals."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.probes.config import ProbeConfig, split_name
from pipelines.probes.lbfgs import Doubles
from pipelines.probes.metrics import (
    SURE,
    ClassCounts,
    Interval,
    Resampling,
    Right,
    accuracy,
    count,
    drawn_margin,
    interval,
    macro_f1,
)
from pipelines.probes.multiplicity import FEWEST, fewest, together
from pipelines.probes.problems import Problem
from pipelines.probes.splits import outside
from pipelines.probes.targets import Codes, generator
from pipelines.probes.tasks import BASELINES, FEATURES, Arrays, Source, is_text, text_beside

NONE = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class Result:
    """One row of results.parquet."""

    label: str
    split: str
    probe: str
    features: str
    """states, untrained, characters, tokens, or majority."""
    source: Source
    classes: int
    rows: int
    groups: int
    test_sets: int
    accuracy: Interval
    macro_f1: Interval
    control_accuracy: float
    """Of the control task, on the same folds and with the same strengths."""
    majority_accuracy: float
    characters_accuracy: float
    """Of the text alone, with what stands where the states were taken; as the one below."""
    tokens_accuracy: float
    untrained_accuracy: float
    """Of the same probe at the same place of the untrained model; NaN where there is none."""
    margin: Interval
    """Accuracy above the best of the controls, with a 99 % interval; of states only."""
    margin_corrected: Interval
    """The same with an interval that holds for all probes, captures and layers of the label and split at once."""
    family: int
    """How many those are."""
    enough_groups: bool
    """Whether there are groups enough to say that anything is above its controls."""
    code_bits: float
    """Online code length of the labels; NaN where two fields are held out, and for probes other than logistic."""
    control_code_bits: float
    uniform_bits: float
    strengths: tuple[float, ...]
    converged: bool
    unseen: int
    """Rows whose class no training row had."""
    revealed: float
    counts: ClassCounts

    @property
    def selectivity(self) -> float:
        """Accuracy above that of the control task."""
        return self.accuracy.value - self.control_accuracy

    @property
    def above_controls(self) -> bool:
        """Whether the 99 % interval of the margin lies above zero, taken by itself."""
        return self.margin.low > 0

    @property
    def above_controls_corrected(self) -> bool:
        """Whether it still does when all that was looked at is allowed for, and there are groups enough."""
        return self.above_controls and self.margin_corrected.low > 0


@dataclass(frozen=True, slots=True)
class _Controls:
    """What a problem's probes are held against."""

    majority: Codes
    """Predictions."""
    texts: dict[Source, Codes]
    """Predictions of every baseline."""
    unseen: int

    def right(self, source: Source, codes: Codes) -> list[Right]:
        """Rows that each control beside `source` has right: majority, characters, tokens."""
        texts = [self.texts[text_beside(source, features)] for features in BASELINES]
        return [predicted == codes for predicted in (self.majority, *texts)]


def make_results(config: ProbeConfig, problem: Problem, place: int, found: Mapping[Source, Arrays]) -> list[Result]:
    """Results of one problem (the one at `place`): baselines first, then states in the order of `found`."""
    made = list(_make_results(config, problem, place, found))
    family = [i for i, (result, _) in enumerate(made) if result.features == "states"]
    values, drawn = [made[i][0].margin.value for i in family], [made[i][1] for i in family]
    corrected = together(values, drawn, fewest(problem.groups))
    results = [result for result, _ in made]
    for i, one in zip(family, corrected, strict=True):
        results[i] = replace(results[i], margin_corrected=one, family=len(family))
    return results


Made = tuple[Result, Doubles]
"""A result without its correction, and its margin in each draw (none of a baseline)."""


def _make_results(config: ProbeConfig, problem: Problem, place: int, found: Mapping[Source, Arrays]) -> Iterator[Made]:
    task = problem.task
    random = generator(config.seed, "draws", problem.label, split_name(problem.split))
    draws = Resampling(problem.groups, config.draws, random)
    controls = _controls(problem, place, found)
    majority = {"predicted": controls.majority.astype(np.int16)}
    yield _result(problem, Source("characters"), "majority", "majority", majority, controls, draws)
    for source, arrays in found.items():
        mine = {name.removeprefix(f"{place}."): a for name, a in arrays.items() if name.startswith(f"{place}.")}
        probes = dict.fromkeys(name.partition(".")[0] for name in mine if name.endswith(".predicted"))
        for probe in probes:
            told = {name.removeprefix(f"{probe}."): a for name, a in mine.items() if name.startswith(f"{probe}.")}
            if probe == "logistic" and "bits" in mine:
                told["bits"] = mine["bits"]
            peer = found.get(replace(source, features="untrained")) if source.features == "states" else None
            if peer is not None:
                told["untrained"] = peer[f"{place}.{probe}.predicted"]
            wide = replace(source, width=int(arrays[FEATURES][0])) if is_text(source) else source
            yield _result(problem, wide, source.features, probe, told, controls, draws)
    assert len(task.rows), "a problem has rows"


def _controls(problem: Problem, place: int, found: Mapping[Source, Arrays]) -> _Controls:
    task = problem.task
    majority, unseen = np.full(len(task.rows), -1, np.int64), 0
    for key in task.folds.keys:
        test, training = task.folds.test_rows(key), task.folds.training_rows(outside(key))
        there = np.bincount(task.codes[training], minlength=task.classes)
        majority[test] = there.argmax()
        unseen += int((there[task.codes[test]] == 0).sum())
    told = f"{place}.logistic.predicted"
    texts = {source: arrays[told].astype(np.int64) for source, arrays in found.items() if is_text(source)}
    return _Controls(majority, texts, unseen)


def _result(
    problem: Problem, source: Source, features: str, probe: str, told: Arrays, controls: _Controls, draws: Resampling
) -> Made:
    task = problem.task
    predicted = told["predicted"].astype(np.int64)
    tested = predicted >= 0
    codes = task.codes
    right = predicted == codes
    control = told["control"].astype(np.int64) == task.control if "control" in told else None
    rivals = controls.right(source, codes)
    others = [float(one.mean()) for one in rivals]
    untrained = told["untrained"].astype(np.int64) == codes if "untrained" in told else None
    rivals += [one for one in (control, untrained) if one is not None]
    bits = told.get("bits", np.full(2, math.nan))
    assert tested.all(), "every row is in a test set"
    margin, drawn = drawn_margin(right, rivals, draws) if features == "states" else (math.nan, np.empty(0))
    result = Result(
        label=problem.label,
        split=split_name(problem.split),
        probe=probe,
        features=features,
        source=source,
        classes=task.classes,
        rows=len(codes),
        groups=_groups(problem),
        test_sets=len(task.folds.keys),
        accuracy=accuracy(right, draws),
        macro_f1=macro_f1(codes, predicted, task.classes, draws),
        control_accuracy=math.nan if control is None else float(control.mean()),
        majority_accuracy=others[0],
        characters_accuracy=others[1],
        tokens_accuracy=others[2],
        untrained_accuracy=math.nan if untrained is None else float(untrained.mean()),
        margin=interval(margin, drawn, SURE),
        margin_corrected=NONE,
        family=0,
        enough_groups=fewest(problem.groups) >= FEWEST,
        code_bits=float(bits[0]),
        control_code_bits=float(bits[1]),
        uniform_bits=len(codes) * math.log2(task.classes),
        strengths=_listed(told, "chosen"),
        converged=bool(told["converged"][0]) if "converged" in told else True,
        unseen=controls.unseen,
        revealed=problem.revealed,
        counts=count(codes, predicted, task.classes),
    )
    return result, drawn


def _groups(problem: Problem) -> int:
    """Combinations of groups that are held out whole."""
    return int(np.unique(np.stack(problem.groups), axis=1).shape[1])


def _listed(told: Arrays, name: str) -> tuple[float, ...]:
    """Strengths chosen in each test set; none where a probe has nothing to choose."""
    values: Sequence[float] = told[name].tolist() if name in told else []
    return tuple(value for value in values if value > 0)
