"""Probes of two runs side by side: the same labels and splits, in two models or with and without an intervention."""

from collections.abc import Iterator, Sequence
from typing import Final

from pipelines.canonical import explain_difference
from pipelines.comparison import Comparison
from pipelines.report import charts
from pipelines.report.behaviour import slug
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
    Table,
    count,
    percent,
)
from pipelines.report.facts import Row
from pipelines.report.probe_results import CORRECTED, Probed, main_probe

MOST: Final = 16
"""Problems that are drawn."""
SHOWN: Final = 12
"""Differences between the probes of both that are told."""
HASHES: Final = ("semantic_hash", "untrained_semantic_hash")
"""What a plan says of the runs and not of the probes."""

Key = tuple[str, str, str, str]
"""Label, split, probe and capture."""


def probes_compared(a: Probed, b: Probed, found: Comparison) -> Chapter | None:
    """Curves of A and B for every label, split and capture that both probed; None if there are none.

    What else than the states may make them differ, in plans, problems and stimuli (`found`), stands before them.
    """
    strands_a, strands_b = _strands(a), _strands(b)
    common = [key for key in strands_a if key in strands_b]
    if not common:
        return None
    rows: tuple[Cells, ...] = tuple(_told(key, strands_a[key], strands_b[key]) for key in common)
    head = (
        "label",
        "split",
        "capture",
        "A: best",
        "at layer",
        "above controls",
        "B: best",
        "at layer",
        "above controls",
    )
    unlike = [*_other_stimuli(found), *_other_plans(a, b), *_other_problems(a, b, common)]
    blocks: list[Block] = [
        *_lead(unlike),
        Table((f"{count(len(common), 'curve')} that both have, each at its best layer",), head, rows),
        *_figures(common, strands_a, strands_b),
    ]
    record = {
        "unlike": unlike,
        "best": [
            {"label": key[0], "split": key[1], "probe": key[2], "capture": key[3], "a": _best(one)["accuracy"],
             "b": _best(strands_b[key])["accuracy"]}
            for key, one in strands_a.items() if key in strands_b
        ]
    }  # fmt: skip
    return Chapter(Section("probes", "What can be read off the states of both", tuple(blocks)), (), record)


def _lead(unlike: Sequence[str]) -> Iterator[Block]:
    beside = (
        "Where B is a copy of A that knows nothing, its curve is what a network of this shape gives from its input "
        "alone. Layers of models of different depth do not stand for each other."
    )
    if not unlike:
        alike = "Accuracy of probes that were trained and tested alike on the states of A and of B. "
        yield Paragraph((alike + beside,))
        return
    yield Paragraph(
        (
            "Accuracy of probes on the states of A and of B. Their plans, problems or prompts are not the same, so "
            "that a difference between two curves need not come from the states. From A to B these differ:",
        )
    )
    more: list[Prose] = [(f"and {len(unlike) - SHOWN} more",)] if len(unlike) > SHOWN else []
    yield Points((*((Code(line),) for line in unlike[:SHOWN]), *more))
    yield Paragraph((beside,))


def _other_stimuli(found: Comparison) -> Iterator[str]:
    yield from found.differences["stimuli"]
    failed = found.stimuli.failed_only_a, found.stimuli.failed_only_b
    if any(failed):
        yield f"prompts that failed: {failed[0]} in A alone, {failed[1]} in B alone"


def _other_plans(a: Probed, b: Probed) -> list[str]:
    one, other = ({name: x for name, x in side.manifest["plan"].items() if name not in HASHES} for side in (a, b))
    return explain_difference(one, other, "plan")


def _other_problems(a: Probed, b: Probed, common: Sequence[Key]) -> Iterator[str]:
    """Rows, classes and test sets of the problems that both have."""
    one, other = ({(x["label"], x["split"]): x for x in side.manifest["problems"]} for side in (a, b))
    for label, split in dict.fromkeys(key[:2] for key in common):
        yield from explain_difference(one.get((label, split)), other.get((label, split)), f"{label}, {split}")


def _strands(probed: Probed) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for label, split in probed.problems:
        rows = probed.of(label, split)
        probe = main_probe(rows)
        for row in sorted((row for row in rows if row["probe"] == probe), key=lambda row: int(row["layer"])):
            found.setdefault((label, split, probe, row["capture"]), []).append(row)
    return found


def _best(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: float(row["accuracy"]))


def _told(key: Key, a: Sequence[Row], b: Sequence[Row]) -> Cells:
    label, split, _, capture = key
    return Code(label), Code(split), Quoted(capture), *_side(_best(a)), *_side(_best(b))


def _side(row: Row) -> Cells:
    layer = "–" if row["layer"] < 0 else str(row["layer"])
    return Number(percent(row["accuracy"])), Number(layer), "yes" if row[CORRECTED] else "no"


def _figures(common: Sequence[Key], a: dict[Key, list[Row]], b: dict[Key, list[Row]]) -> Iterator[Block]:
    layered = [key for key in common if a[key][0]["layer"] >= 0]
    for number, key in enumerate(layered[:MOST], start=1):
        label, split, probe, capture = key
        drawn = charts.curves([_line("A", a[key], 0), _line("B", b[key], 1)], "layer", "accuracy", (-0.02, 1.02))
        alt = f"Accuracy by layer of the probe for {label}, {split}, from {capture}: " + "; ".join(
            f"{name} best {percent(_best(rows)['accuracy'])} at layer {_best(rows)['layer']}"
            for name, rows in (("A", a[key]), ("B", b[key]))
        )
        caption: Prose = (
            f"{probe.replace('_', ' ')} probe of ".capitalize(), Code(label), ", split ", Code(split), ", from ",
            Quoted(capture), ", with 95 % intervals. A solid and round, B dashed and square.",
        )  # fmt: skip
        name = f"both-probes-{number}-{slug(label)}-{slug(split)}"
        yield Figure(name, f"Probes of {label}, {split}", alt, caption, drawn.svg, drawn.png)
    if (left := len(layered) - MOST) > 0:
        yield Paragraph((f"{count(left, 'more curve is', 'more curves are')} in the table only.",))


def _line(name: str, rows: Sequence[Row], series: int) -> charts.Line:
    x, y, low, high = ([row[part] for row in rows] for part in ("layer", "accuracy", "accuracy_low", "accuracy_high"))
    return charts.Line(name, x, y, low, high, series=series)
