"""What probes read off the states: curves over layers with their controls and intervals, split by split."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipelines import placing, tables
from pipelines.errors import VerifyError
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
    Strong,
    Table,
    count,
    percent,
)
from pipelines.report.facts import Facts
from pipelines.report.likelihoods import minus

FOLDER: Final = "probes"
MANIFEST: Final = "manifest.json"
RESULTS: Final = "results.parquet"
SCHEMA: Final = "ember.probe-results/v1"
CONTROLS: Final = {
    "control_accuracy": "random labels",
    "majority_accuracy": "majority",
    "characters_accuracy": "characters",
    "tokens_accuracy": "token ids",
}
SHARED: Final = ("majority_accuracy", "characters_accuracy", "tokens_accuracy")
"""Controls that are the same for all layers."""
CURVES: Final = 4
"""Captures in one figure."""
MOST_FIGURES: Final = 24

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Probed:
    """Results of a finished sweep of probes over a run."""

    manifest: dict[str, Any]
    rows: tuple[Row, ...]
    """Those of results.parquet that are about states."""

    @property
    def problems(self) -> list[tuple[str, str]]:
        """(label, split), in the order of the sweep."""
        return list(dict.fromkeys((row["label"], row["split"]) for row in self.rows))

    def of(self, label: str, split: str) -> list[Row]:
        """Rows of one problem."""
        return [row for row in self.rows if (row["label"], row["split"]) == (label, split)]


def read_probes(facts: Facts, folder: Path | None = None) -> Probed | None:
    """Read the sweep in `folder`, by default `probes` in the run; None if there is none.

    Raises VerifyError for one that is damaged, unfinished, or made from another run.
    """
    place = folder or facts.run.directory / FOLDER
    if folder is None and not place.is_dir():
        return None
    manifest = _manifest(place)
    if manifest["run"]["semantic_hash"] != facts.manifest.semantic_hash:
        raise VerifyError(
            f"{place} holds probes of another run ({manifest['run']['name']!r}); run `ember probe` on this one, or "
            "name the folder of its probes with --probes"
        )
    path = place / RESULTS
    known = {one["path"]: one["sha256"] for one in manifest["files"]}
    if not path.is_file() or placing.sha256_file(path) != known.get(RESULTS):
        raise VerifyError(f"{path} is not the file that {MANIFEST} beside it records; run `ember probe` again")
    try:
        found = [row for group in tables.read_groups(path) for row in group.to_pylist()]
    except tables.DAMAGE as error:
        raise VerifyError(f"{path} cannot be read ({error}); run `ember probe` again") from error
    return Probed(manifest, tuple(row for row in found if row["features"] == "states"))


def _manifest(place: Path) -> dict[str, Any]:
    path = place / MANIFEST
    if not path.is_file():
        raise VerifyError(f"{place} holds no finished probes: there is no {MANIFEST}; run `ember probe` again")
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        if found["schema_version"] != SCHEMA:
            raise ValueError(f"its schema is {found['schema_version']!r}, expected {SCHEMA!r}")
        _ = found["run"]["semantic_hash"], found["files"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise VerifyError(f"{path} is no manifest of probes ({error}); run `ember probe` again") from error
    return found


def probing(probed: Probed) -> Chapter:
    """Verdicts, curves, a heat map of each capture, numbers, and what was refused."""
    verdicts = [_verdict(rows) for rows in _strands(probed)]
    blocks: list[Block] = [_lead(probed), Points(tuple(told for told, _ in verdicts))]
    for number, (label, split) in enumerate(probed.problems[:MOST_FIGURES], start=1):
        blocks += [_curves(number, label, split, probed.of(label, split)), *_code_lengths(label, split, probed)]
    if (left := len(probed.problems) - MOST_FIGURES) > 0:
        blocks.append(Paragraph((f"{count(left, 'more problem')} are in ", Code(RESULTS), " only.")))
    blocks += [*_heat_maps(probed), *_refusals(probed)]
    record = {"verdicts": [one for _, one in verdicts], "refusals": probed.manifest.get("refusals", [])}
    return Chapter(Section("probes", "What can be read off the states", tuple(blocks)), tuple(_summary(probed)), record)


def _lead(probed: Probed) -> Paragraph:
    plan = probed.manifest.get("plan", {})
    return Paragraph(
        (
            "A probe is a linear classifier that is trained to tell a label from states of some prompts and tested on "
            "states of others. Each split says which ones are kept for testing: ", Code("random"),
            ", or whole groups (", Code("root-heldout"), " tests on roots that training never saw). Accuracies stand "
            "with "
            "95 % intervals from drawing groups anew. ", Strong("Controls"), " on the same folds: the same probe on "
            "random labels that are fixed for each word (what it could learn by heart), always guessing the "
            "majority, and probes that see only the characters or the token ids of the prompt. A result is called "
            "above its controls if the 99 % interval of its accuracy minus the best of the four lies above 0. "
            f"Strengths of regularisation were chosen inside training folds only (seed {plan.get('seed', 0)}).",
        )
    )  # fmt: skip


def main_probe(rows: Sequence[Row]) -> str:
    """The probe that figures show: logistic regression if there is one."""
    found = list(dict.fromkeys(row["probe"] for row in rows))
    return "logistic" if "logistic" in found else found[0]


def _strands(probed: Probed) -> Iterator[list[Row]]:
    """Rows of each problem and capture, of the main probe, by layer."""
    for label, split in probed.problems:
        rows = probed.of(label, split)
        main = [row for row in rows if row["probe"] == main_probe(rows)]
        for capture in dict.fromkeys((row["capture"], row["site"]) for row in main):
            strand = [row for row in main if (row["capture"], row["site"]) == capture]
            yield sorted(strand, key=lambda row: int(row["layer"]))


def best_control(row: Row) -> tuple[str, float]:
    """The control that came nearest, or beat the probe."""
    found = {said: row[name] for name, said in CONTROLS.items() if math.isfinite(row[name])}
    name = max(found, key=lambda one: found[one])
    return name, found[name]


def _verdict(rows: Sequence[Row]) -> tuple[Prose, dict[str, Any]]:
    above = [row["layer"] for row in rows if row["above_controls"]]
    best = max(rows, key=lambda row: row["accuracy"])
    control, value = best_control(best)
    where = f" at layer {best['layer']}" if best["layer"] >= 0 else ""
    if above == [-1]:
        told = "above all controls"
    elif above:
        told = f"above all controls {layers_said(above, [row['layer'] for row in rows])}"
    else:
        told = "not above its controls anywhere"
    prose: Prose = (
        Code(best["label"]), " (", Code(best["split"]), f", {best['probe'].replace('_', ' ')}) from ",
        Quoted(best["capture"]), ": ", Strong(told), f"; best{where}: {percent(best['accuracy'])} "
        f"[{percent(best['accuracy_low'])}, {percent(best['accuracy_high'])}], best control there ({control}) "
        f"{percent(value)}.",
    )  # fmt: skip
    kept = ("label", "split", "probe", "capture", "site", "layer", "accuracy", "accuracy_low", "accuracy_high")
    return prose, {name: best[name] for name in kept} | {"control": control, "control_accuracy": value, "above": above}


def layers_said(above: Sequence[int], layers: Sequence[int]) -> str:
    """`at layers 2 to 4 of those captured`, `from layer 2 on`, `at all layers`."""
    if len(above) == len(layers):
        return "at every captured layer"
    if list(above) == list(layers[-len(above) :]):
        return f"from layer {above[0]} on"
    return f"at layer{'s' * (len(above) > 1)} {', '.join(map(str, above))}"


def _summary(probed: Probed) -> Iterator[Prose]:
    """One sentence for each label: its most demanding split, where the states do best."""
    by_label: dict[str, list[list[Row]]] = {}
    for rows in _strands(probed):
        by_label.setdefault(rows[0]["label"], []).append(rows)
    for strands in by_label.values():
        hardest = max(
            (one[0]["split"] for one in strands), key=lambda split: (split.count("-"), split != "random", split)
        )
        there = [one for one in strands if one[0]["split"] == hardest]
        best = max(there, key=lambda rows: max(row["margin"] if row["above_controls"] else -1.0 for row in rows))
        told, _ = _verdict(best)
        yield ("Probe of ", *told)


def _curves(number: int, label: str, split: str, rows: list[Row]) -> Figure:
    probe = main_probe(rows)
    main = [row for row in rows if row["probe"] == probe]
    captures = list(dict.fromkeys(row["capture"] for row in main))
    lines: list[charts.Line] = []
    for i, capture in enumerate(captures[:CURVES]):
        strand = sorted((row for row in main if row["capture"] == capture), key=lambda row: int(row["layer"]))
        layers = [row["layer"] for row in strand]
        lines += [
            charts.Line(
                capture, layers, [row["accuracy"] for row in strand], [row["accuracy_low"] for row in strand],
                [row["accuracy_high"] for row in strand], series=i,
            ),
            charts.Line(
                f"{capture}: random labels", layers, [row["control_accuracy"] for row in strand], series=i, control=True
            ),
        ]  # fmt: skip
    ends = sorted({row["layer"] for row in main})
    for i, name in enumerate(SHARED):
        if math.isfinite(value := main[0][name]):
            lines.append(
                charts.Line(CONTROLS[name], [ends[0], ends[-1]], [value] * 2, series=i, control=True, shared=True)
            )
    drawn = charts.curves(lines, "layer", "accuracy", (-0.02, 1.02))
    told = "; ".join(_alt(main, capture) for capture in captures)
    left = len(captures) - CURVES
    more = f" {count(left, 'more capture')} are in the table only." if left > 0 else ""
    one = main[0]
    caption: Prose = (
        "Accuracy of the ", probe.replace("_", " "), " probe for ", Code(label), ", split ", Code(split),
        f", with 95 % intervals; {count(one['rows'], 'prompt')}, {count(one['classes'], 'class', 'classes')}, "
        f"{count(one['groups'], 'group')} in {count(one['test_sets'], 'test set')}. Dotted and hollow: "
        f"controls.{more}",
    )  # fmt: skip
    return Figure(
        f"probe-{number}-{slug(label)}-{slug(split)}", f"Probe of {label}, {split}",
        f"Accuracy of the probe for {label} by layer, split {split}. {told}.", caption, drawn.svg, drawn.png,
        _numbers(label, split, rows),
    )  # fmt: skip


def _alt(rows: Sequence[Row], capture: str) -> str:
    best = max((row for row in rows if row["capture"] == capture), key=lambda row: float(row["accuracy"]))
    control, value = best_control(best)
    return f"{capture}: best {percent(best['accuracy'])} at layer {best['layer']}, {control} {percent(value)}"


def _numbers(label: str, split: str, rows: Sequence[Row]) -> Table:
    head = (
        "probe", "capture", "layer", "accuracy", "95 % interval", "above controls", "macro-F1", *CONTROLS.values(),
        "above the best", "99 % interval",
    )  # fmt: skip
    return Table(("Probes of ", Code(label), ", split ", Code(split)), head, tuple(_row(row) for row in rows))


def _row(row: Row) -> Cells:
    def shown(name: str) -> str:
        return f"{row[name]:.3f}" if math.isfinite(row[name]) else ""

    def signed(name: str) -> str:
        return minus(f"{row[name]:+.3f}") if math.isfinite(row[name]) else ""

    return (
        row["probe"].replace("_", " "), Quoted(row["capture"]), Number("–" if row["layer"] < 0 else str(row["layer"])),
        Number(shown("accuracy")), Number(f"{shown('accuracy_low')} to {shown('accuracy_high')}"),
        "yes" if row["above_controls"] else "no", Number(shown("macro_f1")),
        *(Number(shown(name)) for name in CONTROLS),
        Number(signed("margin")), Number(f"{signed('margin_low')} to {signed('margin_high')}"),
    )  # fmt: skip


def _code_lengths(label: str, split: str, probed: Probed) -> Iterator[Block]:
    rows = [row for row in probed.of(label, split) if math.isfinite(row["code_bits"])]
    if not rows:
        return
    best = min(rows, key=lambda row: float(row["code_bits"]))
    where = f" at layer {best['layer']}" if best["layer"] >= 0 else ""
    yield Paragraph(
        (
            "Description length: given the states of ", Quoted(best["capture"]), f"{where}, the labels take "
            f"{best['code_bits']:,.0f} bits, random labels {best['control_code_bits']:,.0f}, and "
            f"{best['uniform_bits']:,.0f} if nothing is known. Fewer means easier to read.",
        ),
        "note",
    )  # fmt: skip


def _heat_maps(probed: Probed) -> Iterator[Block]:
    problems = probed.problems
    captures = list(dict.fromkeys(row["capture"] for row in probed.rows if row["layer"] >= 0))
    for number, capture in enumerate(captures, start=1):
        rows = [row for strand in _strands(probed) for row in strand if row["capture"] == capture]
        layers = sorted({row["layer"] for row in rows})
        values = np.full((len(layers), len(problems)), np.nan)
        marked = np.zeros(values.shape, np.bool_)
        for row in rows:
            place = layers.index(row["layer"]), problems.index((row["label"], row["split"]))
            values[place], marked[place] = row["accuracy"], row["above_controls"]
        names = [f"{label}, {split.replace('-heldout', ' held out')}" for label, split in problems]
        drawn = charts.heat(
            values, [str(layer) for layer in layers], names, label="accuracy", limits=(0.0, 1.0), marked=marked,
            first_row_below=True,
        )  # fmt: skip
        alt = f"Heat map of accuracy by layer and problem for {capture}; {int(marked.sum())} of {marked.size} have a "
        "star."
        caption: Prose = (
            "Accuracy by layer (first layer below) and problem (label, and what is held out) for ", Quoted(capture),
            ". A star: above all controls.",
        )  # fmt: skip
        yield Figure(f"probes-{number}", f"All probes of {capture}", alt, caption, drawn.svg, drawn.png)


def _refusals(probed: Probed) -> Iterator[Block]:
    if found := probed.manifest.get("refusals"):
        yield Paragraph(("Splits that cannot be made from this run, and why:",))
        yield Points(
            tuple((Code(one["label"]), ", ", Code(one["split"]), ": ", Quoted(one["reason"]), ".") for one in found)
        )


def probe_warnings(probed: Probed) -> Iterator[Prose]:
    """What about the probes calls for caution."""
    for label, split in probed.problems:
        row = probed.of(label, split)[0]
        if row["unseen"]:
            yield (
                "Probe of ", Code(label), ", ", Code(split), f": {count(row['unseen'], 'prompt')} were tested whose "
                "class no training fold had; they count as wrong.",
            )  # fmt: skip
    if slow := sum(not row["converged"] for row in probed.rows):
        yield (f"{slow} of {len(probed.rows)} probes did not converge: their accuracies may be too low.",)
    failed = probed.manifest["run"].get("failed_samples", 0)
    if failed:
        yield (f"The probes leave {count(failed, 'failed prompt')} out.",)


def probe_limits(probed: Probed) -> Iterator[Prose]:
    """What the probes do not show."""
    untrained = str(probed.manifest.get("untrained_baseline", "not measured"))
    if untrained.startswith("not measured"):
        yield (
            "No untrained model was probed: how much of this any network of this shape would give from its input "
            "alone is not known.",
        )
    problems = probed.problems
    if all(split == "random" for _, split in problems):
        yield ("All splits are random: prompts of one word stand on both sides, and probes may know words by heart.",)
    yield (
        f"{count(len(problems), 'problem')} and many layers were looked at: the best of many numbers is too good by "
        "itself.",
    )
