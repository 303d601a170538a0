"""Two runs side by side: what made them differ, whose answers were right, where their states part."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines.comparison import Comparison
from pipelines.comparison.records import CaptureComparison
from pipelines.report import charts
from pipelines.report.behaviour import by_class, share_record
from pipelines.report.blocks import (
    Block,
    Cells,
    Chapter,
    Code,
    Figure,
    Number,
    Paragraph,
    Points,
    Prose,
    Quoted,
    Section,
    Strong,
    Table,
    codes,
    count,
    percent,
)
from pipelines.report.facts import Column, Facts
from pipelines.report.intervals import by_groups, mcnemar, wilson
from pipelines.report.likelihoods import minus

SHOWN: Final = 12
"""Differences of one part of the two runs that are told."""
FEW_GROUPS: Final = 5

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Common:
    """Stimuli that both runs have and for which both answers were judged, in A's order."""

    a: NDArray[np.int64]
    """Their places in A."""
    right_a: Bools
    right_b: Bools


def differences(found: Comparison) -> Chapter:
    """What made the two runs."""
    same = [part for part, lines in found.differences.items() if not lines]
    items: list[Prose] = [("The same in both: ", ", ".join(same), ".")] if same else []
    for part, lines in found.differences.items():
        items += [(Strong(part), ": ", Code(line)) for line in lines[:SHOWN]]
        if len(lines) > SHOWN:
            items.append((Strong(part), f": and {len(lines) - SHOWN} more"))
    items += [("Note: ", note) for note in found.notes]
    stimuli = found.stimuli
    told: Prose = (
        f"{count(stimuli.common, 'stimulus', 'stimuli')} common to both, matched by id; {stimuli.only_a} only in A, "
        f"{stimuli.only_b} only in B. Of the common ones "
        f"{count(stimuli.other_prompt, 'has', 'have')} another prompt and {stimuli.other_tokens:,} other tokens.",
    )
    sides = Table(
        ("The two runs",),
        ("", "name", "prompts", "failed", "semantic hash"),
        tuple(
            (letter, Quoted(side.name), Number(str(side.samples)), Number(str(side.failed)), Code(side.semantic_hash))
            for letter, side in (("A", found.a), ("B", found.b))
        ),
    )
    summary = _outcome(found)
    first = () if found.comparable else (Paragraph(summary, "lead"),)
    blocks: tuple[Block, ...] = (*first, sides, Paragraph(told), Points(tuple(items)))
    record = {"identical": found.identical, "comparable": found.comparable}
    return Chapter(Section("differences", "What makes the two runs differ", blocks), (summary,), record)


def _outcome(found: Comparison) -> Prose:
    if found.comparable:
        return ("Both runs are identical in everything compared." if found.identical else "The two runs differ.",)
    a, b = (Code(next(iter(ids), "none")) for ids in (found.stimuli.first_only_a, found.stimuli.first_only_b))
    return (
        Strong("No state, answer or score could be compared"), ": prompts are matched by id, and no id is in both "
        "runs (A has ", a, ", for example, and B ", b, ").",
    )  # fmt: skip


def common_answers(a: Facts, b: Facts) -> Common | None:
    """Pair judged answers by id; None if there are none."""
    if not a.judged.any() or not b.judged.any():
        return None
    place = {row["id"]: i for i, row in enumerate(b.stimuli)}
    judged_a, judged_b = a.judged, b.judged
    pairs = [
        (i, place[row["id"]])
        for i, row in enumerate(a.stimuli)
        if row["id"] in place and judged_a[i] and judged_b[place[row["id"]]]
    ]
    if not pairs:
        return None
    in_a, in_b = np.array(pairs, np.int64).T
    return Common(in_a, a.correct[in_a], b.correct[in_b])


def answers(a: Facts, common: Common) -> Chapter:
    """Whose answers were right: shares, the table of both, the difference with its intervals."""
    right_a, right_b = common.right_a, common.right_b
    n = len(right_a)
    shares = [wilson(int(right.sum()), n) for right in (right_a, right_b)]
    cells = {
        "both": int((right_a & right_b).sum()), "only_a": int((right_a & ~right_b).sum()),
        "only_b": int((~right_a & right_b).sum()), "neither": int((~right_a & ~right_b).sum()),
    }  # fmt: skip
    p = mcnemar(cells["only_a"], cells["only_b"])
    difference = right_b.astype(np.float64) - right_a
    groups = dict(_groups(a, common, difference))
    table = Table(
        (f"Right answers to the {count(n, 'prompt')} that both runs judged",),
        ("", "B right", "B wrong"),
        (
            ("A right", Number(str(cells["both"])), Number(str(cells["only_a"]))),
            ("A wrong", Number(str(cells["only_b"])), Number(str(cells["neither"]))),
        ),
    )
    mean = float(difference.mean())
    told: Prose = (
        f"A was right for {shares[0].right} of {n} ({percent(shares[0].value)}), B for {shares[1].right} "
        f"({percent(shares[1].value)}); B − A is {minus(f'{100 * mean:+.1f}')} percentage points. ",
        "If neither were better, prompts that only one gets right would fall to both alike: McNemar’s exact test "
        f"gives p = {p:.2g}.",
    )
    record = {"n": n, "a": share_record(shares[0]), "b": share_record(shares[1]), **cells, "difference": mean, "p": p,
              "bootstrap": groups}  # fmt: skip
    blocks: list[Block] = [Paragraph(told), table, *_bootstrap_table(groups), *_figures(a, common)]
    summary: Prose = (
        "Right answers: A ", Strong(percent(shares[0].value)), ", B ", Strong(percent(shares[1].value)),
        f" of {count(n, 'common prompt')} (p = {p:.2g}).",
    )  # fmt: skip
    return Chapter(Section("answers", "Whose answers were right", tuple(blocks)), (summary,), record)


def _groups(a: Facts, common: Common, difference: NDArray[np.float64]) -> Iterator[tuple[str, dict[str, float]]]:
    if (difference == difference[0]).all():
        return
    for column in a.grouping():
        codes = column.codes[common.a]
        use = codes >= 0
        groups = np.unique(codes[use], return_inverse=True)[1]
        if len(groups) and (n := int(groups.max()) + 1) >= FEW_GROUPS:
            low, high = by_groups(difference[use], groups, (-1.0, 1.0))
            yield column.name, {"groups": n, "low": low, "high": high}


def _bootstrap_table(groups: dict[str, dict[str, float]]) -> list[Block]:
    rows: tuple[Cells, ...] = tuple(
        (
            Code(name),
            Number(f"{one['groups']:.0f}"),
            *(Number(minus(f"{100 * one[end]:+.1f}")) for end in ("low", "high")),
        )
        for name, one in groups.items()
    )
    caption = "95 % intervals of B − A in percentage points when whole groups are drawn anew (bootstrap)"
    return [Table((caption,), ("groups of", "groups", "from", "to"), rows)] if rows else []


def _figures(a: Facts, common: Common) -> Iterator[Block]:
    if all(right.all() or not right.any() for right in (common.right_a, common.right_b)):
        yield Paragraph(("That is so for every label: neither run is right for some prompts and wrong for others.",))
        return
    for number, column in enumerate(a.tabulated()):
        part = Column(column.name, tuple(column.values[i] for i in common.a))
        use = np.ones(len(common.a), np.bool_)
        shares = [by_class(part, use, right) for right in (common.right_a, common.right_b)]
        if not shares[0]:
            continue
        series = [
            (name, [(s.value, s.low, s.high) for s in one.values()]) for name, one in zip("AB", shares, strict=True)
        ]
        drawn = charts.dots(list(shares[0]), series, "share of right answers, 95 % interval")
        rows: tuple[Cells, ...] = tuple(
            (Quoted(name), Number(str(s.n)), Number(str(s.right)), Number(str(shares[1][name].right)))
            for name, s in shares[0].items()
        )
        table = Table(
            ("Right answers by ", Code(column.name)), (Code(column.name), "prompts", "A right", "B right"), rows
        )
        yield Figure(
            f"both-by-{number + 1}", f"Right answers of both by {column.name}",
            f"Share of right answers of A and B for {len(rows)} values of {column.name}; the table below has the "
            "numbers.",
            ("Right answers by ", Code(column.name), " with Wilson’s intervals of 95 %: A round, B square."),
            drawn.svg, drawn.png, table,
        )  # fmt: skip


def outputs(found: Comparison) -> Chapter | None:
    """Continuations, agreements and scores where both runs have them."""
    items: list[Prose] = []
    if (texts := found.generations) is not None:
        first = "" if texts.first_step is None else f" The first difference comes at token {texts.first_step + 1}."
        items.append((f"{texts.same_texts} of {texts.compared} continuations are the same text.{first}",))
    items += [(f"{one.what}: the likeliest is the same for {one.same} of {one.compared}.",) for one in found.agreements]
    items += [
        (
            Code(one.score), f": mean A {minus(f'{one.mean_a:.4g}')}, B {minus(f'{one.mean_b:.4g}')}, mean of B − A "
            f"{minus(f'{one.mean_difference:.4g}')} over {one.compared}; {count(one.same, 'is', 'are')} the same to "
            "the last bit.",
        )
        for one in found.scores
    ]  # fmt: skip
    if (stored := found.answers) is not None:
        alone_has = "".join(f"{one[0].upper()}{one[1:]}. " for one in found.alone)
        same = f"{stored.same} of {stored.compared} answers and their scores are the same in every column."
        told: Prose = (f"{alone_has}{same if stored.compared else 'No prompt has an answer or score in both runs.'}",)
        apart: Prose = (" Columns that differ: ", *codes([one.column for one in stored.columns]), ".")
        alone = (
            f" Of the common prompts {count(stored.only_a, 'has', 'have')} one in A alone, {stored.only_b} in B alone."
        )
        items.append((*told, *(apart if stored.columns else ()), alone if stored.only_a or stored.only_b else ""))
    if (findings := found.findings) is not None:
        items.append((f"What experiments found is the same for {findings.same} of {findings.compared} stimuli.",))
    blocks: list[Block] = [Points(tuple(items))] if items else []
    if texts is not None and texts.partings:
        rows: tuple[Cells, ...] = tuple(
            (Code(p.stimulus_id), Number(str(p.step)), Quoted(p.text_a), Quoted(p.text_b)) for p in texts.partings
        )
        blocks.append(Table(("Where continuations part first",), ("stimulus", "after tokens", "A", "B"), rows))
    return Chapter(Section("outputs", "Continuations and scores side by side", tuple(blocks))) if blocks else None


def parted(found: Comparison) -> Chapter | None:
    """Where hidden states part, layer by layer; None where no row has a counterpart."""
    if not found.comparable:
        return None
    captures = [one for one in found.captures if one.layers]
    blocks = _states_apart(captures)
    if kept := [one for one in found.attention if one.layers]:
        blocks.append(_layers(kept, "Attention of both runs, layer by layer: a row is one head of one query position"))
    record = {one.capture: {"first_apart": one.first_apart} for one in captures}
    record |= {f"attention {one.capture}": {"first_apart": one.first_apart} for one in kept}
    return Chapter(Section("parted", "Where hidden states part", tuple(blocks)), (), record)


def _states_apart(captures: list[CaptureComparison]) -> list[Block]:
    if not captures:
        told = "The two runs have no capture of the same site and width, so their states were not compared."
        return [Paragraph((told,))]
    blocks: list[Block] = [
        Paragraph(
            (
                "For every row that both have: the largest difference of a number over the row’s root mean square, "
                "and the cosine between the two rows. States of different models live in different coordinates: "
                "between models these numbers say nothing about what the states hold.",
            )
        )
    ]
    if layered := [one for one in captures if one.layers[0].layer >= 0]:
        blocks.append(_cosines(layered))
    blocks.append(_layers(captures, "States of both runs, layer by layer"))
    return blocks


def _cosines(captures: list[CaptureComparison]) -> Figure:
    lines = [
        charts.Line(
            one.capture, [s.layer for s in one.layers],
            [float("nan") if s.cosine_mean is None else s.cosine_mean for s in one.layers], series=i,
        )
        for i, one in enumerate(captures[: len(charts.SERIES)])
    ]  # fmt: skip
    drawn = charts.curves(lines, "layer", "mean cosine of A’s and B’s state")
    told = "; ".join(
        f"{one.capture}: {'the same' if one.first_apart is None else f'they part at layer {one.first_apart}'}"
        for one in captures
    )
    caption: Prose = ("Mean cosine between the states that A and B have at the same place, by layer.",)
    return Figure(
        "cosines-a-b", "Cosine between A and B", f"Mean cosine by layer. {told}.", caption, drawn.svg, drawn.png
    )


def _layers(captures: list[CaptureComparison], title: str) -> Table:
    def shown(value: float | None) -> Number:
        return Number("" if value is None else minus(f"{value:.4g}"))

    rows: tuple[Cells, ...] = tuple(
        (
            Quoted(one.capture), Number("–" if s.layer < 0 else str(s.layer)), Number(f"{s.rows:,}"),
            Number(f"{s.identical:,}"), shown(s.max_relative), shown(s.cosine_mean), shown(s.cosine_worst),
        )
        for one in captures
        for s in one.layers
    )  # fmt: skip
    head = ("capture", "layer", "rows", "identical", "largest difference / rms", "mean cosine", "worst cosine")
    return Table((title,), head, rows)
