"""What the model answered: how often it was right, for whom, with intervals; and examples."""

import hashlib
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipelines.report import charts
from pipelines.report.blocks import (
    Block,
    Cells,
    Chapter,
    Code,
    Example,
    Examples,
    Figure,
    Number,
    Paragraph,
    Prose,
    Quoted,
    Section,
    Strong,
    Table,
    codes,
    count,
    listed,
    percent,
)
from pipelines.report.facts import Column, Facts
from pipelines.report.intervals import Share, by_groups, wilson

SHOWN: Final = 8
"""Right and wrong answers that are shown."""
FEW_GROUPS: Final = 5
"""Fewer groups than this give no bootstrap interval worth its name."""
CROSSED: Final = 15
"""Most classes of a label that is crossed with another in a heat map."""

RULES: Final = {
    "exact": "is the expected text", "prefix": "begins with the expected text", "contains": "contains the expected "
    "text",
}  # fmt: skip
STEPS: Final = {
    "trim": "without white space around them", "nfc": "in NFC", "strip_diacritics": "without marks",
    "strip_tatweel": "without tatweel",
}  # fmt: skip

Bools = NDArray[np.bool_]


def behaviour(facts: Facts) -> Chapter | None:
    """Correctness as a whole, by template and labels, and examples; None for a run without judged answers."""
    judged = facts.judged
    if not judged.any():
        return None
    correct = facts.correct
    whole = wilson(int(correct[judged].sum()), int(judged.sum()))
    bootstraps = _bootstraps(facts, judged, correct)
    blocks: list[Block] = [_lead(facts, whole), *_whole_table(whole, bootstraps)]
    record: dict[str, Any] = {"all": share_record(whole), "bootstrap": bootstraps, "by": {}}
    tabulated = facts.tabulated()
    varied = 0 < whole.right < whole.n
    if not varied:
        blocks.append(Paragraph((f"That is so for every label: {'all' if whole.right else 'none'} are right.",)))
    for column in facts.grouping():
        shares = by_class(column, judged, correct)
        record["by"][column.name] = {name: share_record(share) for name, share in shares.items()}
        if not varied:
            continue
        if column in tabulated:
            blocks.append(_column_figure(facts, column, shares, tabulated.index(column)))
        else:
            blocks.append(_spread_of(column, shares))
    blocks += [*_crossing(facts, judged, correct), *_examples(facts, judged, correct)]
    return Chapter(Section("behaviour", "What the model answered", tuple(blocks)), (_summary(whole),), record)


def share_record(share: Share) -> dict[str, Any]:
    """A share as plain data."""
    return {"n": share.n, "right": share.right, "low": share.low, "high": share.high}


def by_class(column: Column, judged: Bools, correct: Bools) -> dict[str, Share]:
    """Share of right answers among judged ones for each class of a column."""
    codes = column.codes
    found = {}
    for number, name in enumerate(column.classes):
        here = judged & (codes == number)
        if here.any():
            found[name] = wilson(int(correct[here].sum()), int(here.sum()))
    return found


def _summary(whole: Share) -> Prose:
    return (
        "The model’s answers were right for ",
        Strong(f"{whole.right} of {whole.n}"),
        f" prompts ({percent(whole.value)}; 95 % interval {percent(whole.low)} to {percent(whole.high)}).",
    )


def _lead(facts: Facts, whole: Share) -> Paragraph:
    judged = [row for row, use in zip(facts.answers, facts.judged, strict=True) if use]
    rule = listed([RULES[name] for name in RULES if any(row["expect_mode"] == name for row in judged)], "or")
    steps = (facts.manifest.origin.generation or {}).get("normalize", ["trim"])
    done = listed([STEPS.get(step, step) for step in steps])
    raw = sum(row["match_raw"] for row in judged)
    return Paragraph(
        (
            f"An answer counts as right if, once both texts are compared {done}, it {rule}. {whole.right} of "
            f"{whole.n} are right; {raw} also as they stand. Nothing else was done to the texts: another spelling of "
            "the same word counts as wrong.",
        )
    )


def _bootstraps(facts: Facts, judged: Bools, correct: Bools) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    if correct[judged].all() or not correct[judged].any():
        # Drawing anew from what does not vary would give an interval without width.
        return found
    for column in facts.grouping():
        codes = column.codes
        use = judged & (codes >= 0)
        groups = np.unique(codes[use], return_inverse=True)[1]
        if len(groups) and (n := int(groups.max()) + 1) >= FEW_GROUPS:
            low, high = by_groups(correct[use].astype(np.float64), groups)
            found[column.name] = {"groups": n, "n": int(use.sum()), "low": low, "high": high}
    return found


def _whole_table(whole: Share, bootstraps: dict[str, dict[str, float]]) -> list[Block]:
    if not bootstraps:
        return []
    rows = [("each prompt by itself (Wilson)", *_ends(whole.n, whole.low, whole.high))]
    for name, one in bootstraps.items():
        told = ("whole groups of ", Code(name), " (bootstrap)")
        rows.append((told, *_ends(int(one["groups"]), one["low"], one["high"])))  # type: ignore[arg-type]
    caption: Prose = (
        f"95 % intervals of the share of right answers, {percent(whole.value)}, under different ideas of what would "
        "be new next time. If prompts of one group share their fate, the interval that draws whole groups is the "
        "honest one for other groups of the kind.",
    )
    return [Table(caption, ("what is drawn", "units", "from", "to"), tuple(rows))]


def _ends(n: int, low: float, high: float) -> tuple[Number, Number, Number]:
    return Number(f"{n:,}"), Number(percent(low)), Number(percent(high))


def _column_figure(facts: Facts, column: Column, shares: dict[str, Share], number: int) -> Figure:
    drawn = charts.dots(
        list(shares),
        [("", [(s.value, s.low, s.high) for s in shares.values()])],
        "share of right answers, 95 % interval",
    )
    same = facts.same_as(column)
    also: Prose = (" It parts the prompts exactly as ", *codes(same), ".") if same else ()
    lacking = sum(value is None for value in column.values)
    without: Prose = (
        (f" {count(lacking, 'prompt without it is', 'prompts without it are')} left out.",) if lacking else ()
    )
    best, worst = max(shares, key=lambda k: shares[k].value), min(shares, key=lambda k: shares[k].value)
    alt = (
        f"Share of right answers for {len(shares)} values of {column.name}: from {percent(shares[worst].value)} "
        f"({worst}) to {percent(shares[best].value)} ({best})."
    )
    return Figure(
        f"right-by-{number + 1}-{slug(column.name)}",
        f"Right answers by {column.name}",
        alt,
        ("Right answers by ", Code(column.name), ", with Wilson’s intervals of 95 %.", *also, *without),
        drawn.svg,
        drawn.png,
        _shares_table(column, shares),
    )


def _spread_of(column: Column, shares: dict[str, Share]) -> Paragraph:
    """What can be said of a label with too many values for a table."""
    low, middle, high = np.quantile([share.value for share in shares.values()], [0.0, 0.5, 1.0])
    whole = sum(share.value == 1.0 for share in shares.values())
    return Paragraph(
        (
            Code(column.name), f" has {len(shares)} values, too many for a figure: the share of right answers runs "
            f"from {percent(low)} to {percent(high)}, its median is {percent(middle)}, and {whole} values are always "
            "right.",
        )
    )  # fmt: skip


def _shares_table(column: Column, shares: dict[str, Share]) -> Table:
    rows: tuple[Cells, ...] = tuple(
        (Quoted(name), Number(f"{s.n}"), Number(f"{s.right}"), Number(percent(s.value)), *_ends(0, s.low, s.high)[1:])
        for name, s in shares.items()
    )
    return Table(
        ("Right answers by ", Code(column.name)), (Code(column.name), "prompts", "right", "share", "from", "to"), rows
    )


def slug(name: str) -> str:
    """A name for an id or a file: letters, digits and dashes, or a hash where nothing else is left."""
    kept = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in name).split()).lower()[:40]
    return kept or hashlib.sha256(name.encode()).hexdigest()[:8]


def _crossing(facts: Facts, judged: Bools, correct: Bools) -> list[Block]:
    """The two columns whose cells differ most, as a heat map; nothing if fewer than two fit."""
    columns = [column for column in facts.tabulated() if len(column.classes) <= CROSSED]
    found = [
        (_spread(tally), -i, -j, tally, a, b)
        for i, a in enumerate(columns)
        for j, b in enumerate(columns)
        if len(a.classes) >= len(b.classes) and i != j and (tally := _tally(a, b, judged, correct)) is not None
    ]
    if not found:
        return []
    spread, *_, (right, n), a, b = max(found, key=lambda one: one[:3])
    if spread == 0:
        return []
    shares = np.divide(right, n, out=np.full(right.shape, math.nan), where=n > 0)
    drawn = charts.heat(shares, a.classes, b.classes, label="share of right answers", limits=(0.0, 1.0))
    rows: tuple[Cells, ...] = tuple(
        (Quoted(name), *(Number(f"{int(right[i, j])} of {int(n[i, j])}") for j in range(len(b.classes))))
        for i, name in enumerate(a.classes)
    )
    caption: Prose = (
        "Right answers by ", Code(a.name), " (rows) and ", Code(b.name), " (columns). Of all pairs of labels this one "
        "is shown because its cells differ most; among many pairs one always does.",
    )  # fmt: skip
    low, high = np.nanmin(shares), np.nanmax(shares)
    alt = f"Heat map of the share of right answers by {a.name} and {b.name}, from {percent(low)} to {percent(high)}."
    table = Table(("Right answers by ", Code(a.name), " and ", Code(b.name)), ("", *map(Quoted, b.classes)), rows)
    return [
        Figure("right-crossed", f"Right answers by {a.name} and {b.name}", alt, caption, drawn.svg, drawn.png, table)
    ]


def _tally(a: Column, b: Column, judged: Bools, correct: Bools) -> tuple[Any, Any] | None:
    """Right answers and prompts [classes of a, classes of b]; None where one column follows from the other."""
    codes_a, codes_b = a.codes, b.codes
    use = judged & (codes_a >= 0) & (codes_b >= 0)
    shape = len(a.classes), len(b.classes)
    right, n = np.zeros(shape), np.zeros(shape)
    np.add.at(n, (codes_a[use], codes_b[use]), 1)
    np.add.at(right, (codes_a[use], codes_b[use]), correct[use])
    nested = bool(((n > 0).sum(axis=1) <= 1).all() or ((n > 0).sum(axis=0) <= 1).all())
    return None if nested else (right, n)


def _spread(tally: tuple[Any, Any]) -> float:
    right, n = tally
    share = right.sum() / n.sum()
    means = np.divide(right, n, out=np.full(n.shape, share), where=n > 0)
    return float((n * (means - share) ** 2).sum() / n.sum())


def _examples(facts: Facts, judged: Bools, correct: Bools) -> list[Block]:
    wrong, right = (_chosen(facts, judged & mask) for mask in (~correct, correct))
    rule = "Which ones are shown was decided by a hash of their ids, not by their looks."
    blocks: list[Block] = []
    for name, found, total in (
        ("Wrong", wrong, int((judged & ~correct).sum())),
        ("Right", right, int((judged & correct).sum())),
    ):
        if found:
            blocks.append(Examples((f"{name} answers: {len(found)} of {total}. {rule}",), tuple(found)))
        else:
            blocks.append(Paragraph((f"{name} answers: none.",)))
    return blocks


def _chosen(facts: Facts, mask: Bools) -> list[Example]:
    places = sorted(np.flatnonzero(mask).tolist(), key=lambda i: _lot(facts.stimuli[i]["id"]))[:SHOWN]
    return [_example(facts, i) for i in places]


def _lot(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _example(facts: Facts, i: int) -> Example:
    stimulus, answer = facts.stimuli[i], facts.answers[i]
    labels = [(column.name, column.values[i]) for column in facts.columns]
    return Example(
        stimulus["prompt"], answer["text"], answer["expected"], bool(answer["correct"]), stimulus["id"],
        tuple((name, value) for name, value in labels if value is not None),
    )  # fmt: skip
