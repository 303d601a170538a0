"""A comparison as lines of text; prompts and ids stand as they are."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pipelines.comparison.attention import ATTENTION
from pipelines.comparison.records import (
    AgreementComparison,
    AnswersComparison,
    CaptureComparison,
    Comparison,
    FindingsComparison,
    GenerationsComparison,
    LayerComparison,
    RunSide,
    ScoreComparison,
    StimuliComparison,
)

SHOWN: Final = 6
"""Differences of one part of the runs that are told; JSON has all."""


def comparison_lines(found: Comparison) -> list[str]:
    """Say what a comparison found."""
    sides = [_side("A", found.a), _side("B", found.b), ""]
    made = [*_origins(found), *_stimuli(found.stimuli)]
    if not found.comparable:
        return [*sides, f"nothing could be compared: {nothing_common(found.stimuli)}", "", *made]
    return [
        *sides,
        *made,
        *(line for capture in found.captures for line in _capture(capture)),
        *_alone(found.only_a, found.only_b, "captures"),
        *(line for kept in found.attention for line in _capture(kept)),
        *_alone(found.attention_only_a, found.attention_only_b, "kept attention"),
        *(_answers(found.answers, found.alone) if found.answers else ()),
        *(_generations(found.generations) if found.generations else ()),
        *(_agreement(agreement) for agreement in found.agreements),
        *(_score(score) for score in found.scores),
        *(_findings(found.findings) if found.findings else ()),
        "",
        "identical in everything compared" if found.identical else "they differ",
    ]


def nothing_common(found: StimuliComparison) -> str:
    """Say that no stimulus is in both runs, with an id of each."""
    a, b = (next(iter(ids), "none") for ids in (found.first_only_a, found.first_only_b))
    return f"stimuli are matched by id, and no id is in both runs (A has {a!r}, for example, and B {b!r})"


def _side(letter: str, run: RunSide) -> str:
    failed = f", {run.failed} of them failed" if run.failed else ""
    return f"{letter}  {run.directory}  ({run.name}, {run.samples} samples{failed})"


def _origins(found: Comparison) -> Iterator[str]:
    same = [part for part, lines in found.differences.items() if not lines]
    if same:
        yield f"same        {', '.join(same)}"
    for part, lines in found.differences.items():
        for i, line in enumerate(lines[:SHOWN]):
            yield f"{'' if i else part:<11} {line}"
        if len(lines) > SHOWN:
            yield f"{'':<11} … and {len(lines) - SHOWN} more (--json shows all)"
    for note in found.notes:
        yield f"note        {note}"


def _stimuli(found: StimuliComparison) -> Iterator[str]:
    yield f"common      {found.common} stimuli, matched by id"
    if found.other_prompt or found.other_tokens:
        yield f"{'':<11} {found.other_prompt} of them with another prompt, {found.other_tokens} with other token ids"
    for side, count, ids in (("A", found.only_a, found.first_only_a), ("B", found.only_b, found.first_only_b)):
        if count:
            yield f"only in {side}   {count}: {', '.join(ids)}{', …' if count > len(ids) else ''}"
    for side, count, ids in (
        ("A", found.failed_only_a, found.first_failed_only_a), ("B", found.failed_only_b, found.first_failed_only_b)
    ):  # fmt: skip
        if count:
            yield f"failed      only in {side}, {count}: {', '.join(ids)}{', …' if count > len(ids) else ''}"


def _capture(found: CaptureComparison) -> Iterator[str]:
    name = found.capture if found.capture == found.capture_b else f"{found.capture} (in B {found.capture_b})"
    position = found.position if found.position == found.position_b else f"{found.position} (in B {found.position_b})"
    yield ""
    what = f"attention {name}: every head" if found.site == ATTENTION else f"capture {name}: {found.site}"
    yield f"{what}, position {position}"
    if found.unmatched_a or found.unmatched_b:
        yield f"  rows without counterpart at each layer: {found.unmatched_a} of A, {found.unmatched_b} of B"
    for side, layers in (("A", found.only_a), ("B", found.only_b)):
        if layers:
            yield f"  layers only in {side}: {', '.join(map(str, layers))}"
    if found.layers:
        yield from ("  " + line for line in _table(found.layers))
    if not any(layer.rows for layer in found.layers):
        yield "  no row is in both"
    elif found.first_apart is None:
        yield "  the same bits everywhere"
    elif found.layers[0].layer >= 0:
        yield f"  they part at layer {found.first_apart}"


def _table(layers: Sequence[LayerComparison]) -> Iterator[str]:
    ranks = layers[0].top1_same is not None
    head = ["layer", "rows", "identical", "max|d|/rms", "mean cosine", "worst cosine", *(["top-1"] if ranks else [])]
    rows = [_cells(one, ranks=ranks) for one in layers]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    odd = any(one.not_finite for one in layers)
    for cells, end in zip([head, *rows], ["where max|d|/rms is", *map(_where, layers)], strict=True):
        told = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        yield f"{told}  {end}".rstrip()
    if odd:
        yield "rows with NaN or infinity are counted as different and not measured: " + ", ".join(
            f"{one.not_finite} at layer {one.layer}" for one in layers if one.not_finite
        )


def _cells(one: LayerComparison, *, ranks: bool) -> list[str]:
    numbers = [_number(x) for x in (one.max_relative, one.cosine_mean, one.cosine_worst)]
    layer = "-" if one.layer < 0 else str(one.layer)
    return [layer, str(one.rows), str(one.identical), *numbers, *([str(one.top1_same)] if ranks else [])]


def _where(one: LayerComparison) -> str:
    if one.worst is None:
        return ""
    step = f", step {one.worst.step}" if one.worst.step >= 0 else ""
    place = f", position {one.worst.position}" if one.worst.position >= 0 else ""
    head = f", head {one.worst.head}" if one.worst.head is not None else ""
    return f"{one.worst.stimulus_id}{step}{place}{head}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _alone(only_a: Sequence[str], only_b: Sequence[str], what: str) -> Iterator[str]:
    for side, names in (("A", only_a), ("B", only_b)):
        if names:
            yield ""
            yield f"{what} only in {side}: {', '.join(names)}"


def _answers(found: AnswersComparison, alone: Sequence[str]) -> Iterator[str]:
    yield ""
    rows = f"{found.same} of {found.compared} rows are the same in every column" if found.compared else "none in both"
    yield f"answers     {'; '.join([*alone, rows])}"
    for column in found.columns:
        far = "" if column.max_difference is None else f", largest |B - A| {_number(column.max_difference)}"
        yield f"{'':<11} {column.column}: {column.apart} apart, the first {column.first}{far}"
    for side, count in (("A", found.only_a), ("B", found.only_b)):
        if count:
            yield f"{'':<11} {count} of common stimuli only in {side}"


def _generations(found: GenerationsComparison) -> Iterator[str]:
    first = "" if found.first_step is None else f"; the first difference is at step {found.first_step}"
    yield ""
    yield f"tokens      {found.same_tokens} of {found.compared} continuations are the same{first}"
    yield f"texts       {found.same_texts} of {found.compared} are the same"
    yield f"top-1       the first new token is the same for {found.same_first_token} of {found.compared}"
    if found.expected:
        yield f"correct     A {found.correct_a}, B {found.correct_b} of {found.expected}"
    for parting in found.partings:
        yield f"{'':<11} {parting.stimulus_id}, step {parting.step}: A {parting.text_a!r}, B {parting.text_b!r}"


def _agreement(found: AgreementComparison) -> str:
    apart = f"; not for {', '.join(found.first_apart)}" if found.first_apart else ""
    more = ", …" if found.compared - found.same > len(found.first_apart) else ""
    return f"likeliest   {found.what}: the same for {found.same} of {found.compared}{apart}{more}"


def _findings(found: FindingsComparison) -> Iterator[str]:
    apart = f"; not for {', '.join(found.first_apart)}" if found.first_apart else ""
    more = ", …" if found.compared - found.same > len(found.first_apart) else ""
    yield f"findings    of experiments: the same for {found.same} of {found.compared}{apart}{more}"


def _score(found: ScoreComparison) -> str:
    worst = f" ({found.worst})" if found.worst is not None else ""
    alone = f"; {found.one_sided} more in one run alone" if found.one_sided else ""
    numbers: tuple[Any, ...] = (found.mean_a, found.mean_b, found.mean_difference, found.max_difference)
    a, b, mean, largest = map(_number, numbers)
    return (
        f"score       {found.score}: {found.same} of {found.compared} the same; mean A {a}, B {b}, B - A {mean}; "
        f"largest |B - A| {largest}{worst}{alone}"
    )
