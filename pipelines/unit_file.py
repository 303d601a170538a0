"""The plan as workers read it: one file of arrays, written once, so that a task carries no prompt.

Kept under `.ember/plan/` by the hash of its content. Workers map it (`pipelines.mapped`): what they hold does not grow
with the number of prompts.
"""

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ember.work import CaptureWork, Observe, Tokens, UnitWork
from pipelines import placing
from pipelines.continuations import GREEDY, NOTHING_SCORED, Choosing, ContinuationTable
from pipelines.errors import RunError
from pipelines.hook_tables import (
    AttentionTable,
    ExperimentTable,
    InterventionTable,
    Ragged,
    ReadRows,
    decode,
    encode,
    no_rows,
)
from pipelines.mapped import map_arrays, write_arrays
from pipelines.state import PLANS
from pipelines.texts import Arrays, MaybeTexts, Texts, TextWriter

if TYPE_CHECKING:
    from pipelines.plan import Plan

Ints = NDArray[np.int32]
Starts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CaptureTable:
    """A capture with the token indices of all samples, one after another."""

    name: str
    site: str
    layers: tuple[int, ...]
    pooled: bool
    positions: Ints
    starts: Starts
    """[samples + 1] where each sample's positions start."""
    observe: Observe = "after"
    step: int | None = None
    """A generated step, or ALL_STEPS; None for tokens of the prompt."""
    on_steps: Sequence[bool] | NDArray[np.bool_] = ()
    """With `step`: [samples] whether a sample's steps are captured."""

    def work(self, samples: range) -> CaptureWork:
        """What the engine is to take from a unit."""
        positions = tuple(tuple(self.of(i).tolist()) for i in samples)
        on_steps = tuple(map(bool, self.on_steps[samples.start : samples.stop]))
        return CaptureWork(self.site, self.layers, positions, self.pooled, self.observe, self.step, on_steps)

    def of(self, sample: int) -> Ints:
        """Token indices of one sample."""
        return self.positions[self.starts[sample] : self.starts[sample + 1]]


@dataclass(frozen=True, slots=True)
class UnitFile:
    """All samples of a run, and what is to be taken from them."""

    tokens: Tokens
    starts: Starts
    """[samples + 1] where each sample's tokens start."""
    special_ids: frozenset[int]
    ids: Sequence[str]
    expected: Sequence[str | None]
    expect_modes: Sequence[str]
    captures: tuple[CaptureTable, ...]
    max_tokens: int
    stop_ids: tuple[int, ...]
    choosing: Choosing = GREEDY
    scores: ContinuationTable = NOTHING_SCORED
    top_k: int = 0
    """Likeliest first tokens to keep after each prompt; 0: none."""
    interventions: tuple[InterventionTable, ...] = ()
    experiments: tuple[ExperimentTable, ...] = ()
    attention: tuple[AttentionTable, ...] = ()
    compare_steps: tuple[str, ...] = ()
    """What is done to texts before they are compared, beside trimming (`pipelines.stimuli.expect.STEPS`)."""

    @property
    def answers(self) -> bool:
        """Whether samples have a row of `generations`."""
        return self.max_tokens > 0 or self.top_k > 0 or len(self.scores.merged) > 0

    def prompt(self, sample: int) -> Tokens:
        """Token ids of one sample."""
        return np.array(self.tokens[self.starts[sample] : self.starts[sample + 1]])

    def work(self, start: int, end: int, guard_positions: int, read_rows: ReadRows = no_rows) -> UnitWork:
        """What the engine is to do for samples [start, end); `read_rows` fetches rows of finished runs."""
        samples = range(start, end)
        return UnitWork(
            prompts=tuple(self.prompt(i) for i in samples),
            captures=tuple(capture.work(samples) for capture in self.captures),
            max_tokens=self.max_tokens,
            stop_ids=self.stop_ids,
            guard_positions=guard_positions,
            attention=tuple(one.work(samples) for one in self.attention),
            interventions=tuple(one for act in self.interventions for one in act.works(start, end, read_rows)),
            sampling=self.choosing.work(self.ids[start:end]),
            continuations=self.scores.work(start, end),
            top_k=self.top_k,
        )


def write_unit_file(run_dir: Path, plan: "Plan") -> str:
    """Write the plan's file, if it is not there, and return its path relative to the run directory."""
    arrays, told = _arrays(plan)
    needed = sum(array.nbytes for array in arrays.values())
    with (
        placing.disk_errors(run_dir, "cannot write the plan", needed),
        placing.staged(run_dir, "plan", "units.arrays") as staged,
    ):
        write_arrays(staged, arrays, told)
        name = f"{PLANS}/units-{_stamp(staged)}.arrays"
        placing.sync_file(staged)
        placing.place(staged, run_dir / name)
    return name


@functools.lru_cache(maxsize=2)
def read_unit_file(path: Path) -> UnitFile:
    """Map a plan's file; a process opens each only once. Raises RunError for one that was damaged."""
    try:
        if _stamp(path) != path.stem.removeprefix("units-"):
            raise ValueError("its bytes are not those of its name")
        arrays, told = map_arrays(path)
        return _decode(arrays, told)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path}: the plan for workers cannot be read: {error}. Delete the file and run the same command again"
        ) from error


def _stamp(path: Path) -> str:
    return placing.sha256_file(path)[:16]


def _decode(arrays: Arrays, told: dict[str, Any]) -> UnitFile:
    hooks = decode(arrays, told["hooks"])
    return UnitFile(
        tokens=arrays["tokens"],
        starts=arrays["starts"],
        special_ids=frozenset(told["special_ids"]),
        ids=Texts.read(arrays, "ids"),
        expected=MaybeTexts.read(arrays, "expected"),
        expect_modes=Texts.read(arrays, "expect_modes"),
        captures=tuple(_decode_capture(arrays, i, one) for i, one in enumerate(told["captures"])),
        max_tokens=told["max_tokens"],
        stop_ids=tuple(told["stop_ids"]),
        choosing=Choosing.read(told["choosing"]),
        scores=ContinuationTable.read(arrays),
        top_k=told["top_k"],
        compare_steps=tuple(told["compare_steps"]),
        interventions=hooks.interventions,
        experiments=hooks.experiments,
        attention=hooks.attention,
    )


def _decode_capture(arrays: Arrays, i: int, told: dict[str, Any]) -> CaptureTable:
    return CaptureTable(
        told["name"],
        told["site"],
        tuple(told["layers"]),
        told["pooled"],
        arrays[f"positions{i}"],
        arrays[f"starts{i}"],
        told["observe"],
        told["step"],
        arrays[f"on_steps{i}"],
    )


def _arrays(plan: "Plan") -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    prompts = Ragged.of(plan.samples.prompts)
    arrays: dict[str, NDArray[Any]] = {"tokens": prompts.values, "starts": prompts.starts}
    for i, capture in enumerate(plan.captures):
        arrays[f"positions{i}"], arrays[f"starts{i}"] = capture.positions.values, capture.positions.starts
        arrays[f"on_steps{i}"] = np.array(capture.on_steps, np.bool_)
    arrays |= _texts(plan) | plan.scores.arrays()
    acting, hooks = encode(plan.hooks.tables)
    return arrays | acting, _told(plan) | {"hooks": hooks}


def _texts(plan: "Plan") -> dict[str, NDArray[Any]]:
    ids, expected, expect_modes = TextWriter(), TextWriter(), TextWriter()
    there = np.zeros(len(plan.samples), np.bool_)
    for place, sample in enumerate(plan.samples):
        stimulus = sample.stimulus
        ids.add(stimulus.id)
        expected.add(stimulus.expected or "")
        there[place] = stimulus.expected is not None
        expect_modes.add(stimulus.expect_mode)
    return (
        ids.done().arrays("ids")
        | MaybeTexts(expected.done(), there).arrays("expected")
        | expect_modes.done().arrays("expect_modes")
    )


def _told(plan: "Plan") -> dict[str, Any]:
    return {
        "special_ids": sorted(plan.special_ids),
        "captures": [
            {name: getattr(c, name) for name in ("name", "site", "layers", "pooled", "observe", "step")}
            for c in plan.captures
        ],
        "max_tokens": plan.max_tokens,
        "stop_ids": list(plan.source.tokenizer.stop_ids),
        "choosing": asdict(plan.choosing),
        "top_k": plan.top_k,
        "compare_steps": plan.config.score.normalize if plan.config.score else (),
    }
