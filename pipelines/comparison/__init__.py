"""Comparing two finished runs: what made them, and where their rows, continuations and scores part.

    found = pipelines.compare("outputs/baseline", "outputs/patched")
    found.captures[0].first_apart           # the first layer at which a row differs

Stimuli are matched by id. Nothing of the engine is needed, and memory does not grow with the runs' rows of vectors.
"""

from pathlib import Path
from typing import Final

import numpy as np

from pipelines.comparison.attention import compare_attention
from pipelines.comparison.matching import Ints, read_samples
from pipelines.comparison.origins import explain_origins
from pipelines.comparison.outputs import compare_answers, compare_findings
from pipelines.comparison.records import Comparison, RunSide, StimuliComparison
from pipelines.comparison.states import Side, compare_captures
from pipelines.reading import Run, load

__all__ = ["Comparison", "compare"]

SHOWN: Final = 5
"""Ids of stimuli without counterpart that are told."""


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Compare the finished runs in directories `a` and `b`, checking every file of both first.

    Prompts that failed have no rows; which ones failed in one run alone is told. Raises InputError for what is no
    directory, RunError for an unfinished run, VerifyError listing what is wrong with a damaged one.
    """
    runs = [load(side, verify=True, partial=True) for side in (a, b)]
    differences, notes = explain_origins(*((run.directory, run.manifest) for run in runs))
    samples_a, samples_b = (read_samples(run) for run in runs)
    numbers_a, numbers_b = _number(samples_a.ids, samples_b.ids)
    one, other = Side(runs[0], samples_a, numbers_a), Side(runs[1], samples_b, numbers_b)
    captures, only_a, only_b = compare_captures(one, other)
    attention, attention_only_a, attention_only_b = compare_attention(one, other)
    answers, generations, agreements, scores = compare_answers(one, other)
    return Comparison(
        a=_side(runs[0]),
        b=_side(runs[1]),
        differences=differences,
        notes=tuple(notes),
        stimuli=_stimuli(one, other),
        captures=tuple(captures),
        only_a=tuple(only_a),
        only_b=tuple(only_b),
        attention=tuple(attention),
        attention_only_a=tuple(attention_only_a),
        attention_only_b=tuple(attention_only_b),
        answers=answers,
        generations=generations,
        agreements=agreements,
        scores=scores,
        findings=compare_findings(one, other),
    )


def _side(run: Run) -> RunSide:
    manifest = run.manifest
    return RunSide(
        str(run.directory),
        manifest.origin.name,
        manifest.status,
        manifest.samples,
        len(manifest.failed_samples),
        manifest.semantic_hash,
        generated=manifest.origin.generation is not None,
        scored=manifest.origin.scoring is not None,
    )


def _number(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Number the stimuli that both have, in A's order; others get -1."""
    there = set(b)
    number = {name: i for i, name in enumerate(name for name in a if name in there)}
    numbers_a, numbers_b = (np.array([number.get(name, -1) for name in side], np.int64) for side in (a, b))
    return numbers_a, numbers_b


def _stimuli(a: Side, b: Side) -> StimuliComparison:
    only_a, only_b = ([side.samples.ids[i] for i in np.flatnonzero(side.numbers < 0)] for side in (a, b))
    pairs = _common(a.numbers, b.numbers)
    prompts = sum(a.samples.prompts[i] != b.samples.prompts[j] for i, j in pairs)
    tokens = sum(not np.array_equal(a.samples.tokens_of(i), b.samples.tokens_of(j)) for i, j in pairs)
    failed_a, failed_b = _failed(a), _failed(b)
    lost_a, lost_b = ([name for name in x if name not in y] for x, y in ((failed_a, failed_b), (failed_b, failed_a)))
    return StimuliComparison(
        common=len(pairs),
        only_a=len(only_a),
        only_b=len(only_b),
        other_prompt=prompts,
        other_tokens=tokens,
        first_only_a=tuple(only_a[:SHOWN]),
        first_only_b=tuple(only_b[:SHOWN]),
        failed_only_a=len(lost_a),
        failed_only_b=len(lost_b),
        first_failed_only_a=tuple(lost_a[:SHOWN]),
        first_failed_only_b=tuple(lost_b[:SHOWN]),
    )


def _failed(side: Side) -> dict[str, None]:
    """Ids of the common stimuli that failed, in the order of samples."""
    failed = side.run.manifest.failed_samples
    return dict.fromkeys(side.samples.ids[i] for i in failed if side.numbers[i] >= 0)


def _common(a: Ints, b: Ints) -> list[tuple[int, int]]:
    """Sample indices of the same stimuli in both runs."""
    samples_a, samples_b = np.flatnonzero(a >= 0), np.flatnonzero(b >= 0)
    return list(zip(samples_a.tolist(), samples_b[np.argsort(b[samples_b])].tolist(), strict=True))
