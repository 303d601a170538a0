"""What probes read off the states: curves over layers with their controls and intervals, split by split."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from ember.sites import NO_LAYER
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
    Part,
    Points,
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
from pipelines.report.facts import Row
from pipelines.report.likelihoods import minus
from pipelines.report.probe_results import (
    CONTROLS,
    CORRECTED,
    RESULTS,
    UNTRAINED,
    Probed,
    best_control,
    enough_groups,
    layers_above,
    layers_said,
    main_probe,
    strands,
)

ALONE: Final = "above_controls"
"""Whether a row is above its controls taken by itself."""
OWN: Final = ("control_accuracy", UNTRAINED)
"""Controls that differ from layer to layer."""
SHARED: Final = ("majority_accuracy", "characters_accuracy", "tokens_accuracy")
"""Controls that are the same for all layers of a capture."""
TEXT: Final = ("characters_accuracy", "tokens_accuracy")
"""Controls that see only the prompt's text."""
NAMED: Final = 4
"""Curves that the summary names."""
CURVES: Final = 4
"""Captures in one figure."""
MOST_FIGURES: Final = 24


def probing(probed: Probed) -> Chapter:
    """Verdicts, curves, a heat map of each capture, numbers, and what was refused."""
    verdicts = [_verdict(rows) for rows in strands(probed)]
    blocks: list[Block] = [_lead(probed), Points(tuple(told for told, _ in verdicts))]
    for number, (label, split) in enumerate(probed.problems[:MOST_FIGURES], start=1):
        blocks += [_curves(number, label, split, probed.of(label, split)), *_code_lengths(label, split, probed)]
    if (left := len(probed.problems) - MOST_FIGURES) > 0:
        blocks.append(
            Paragraph((f"{count(left, 'more problem is', 'more problems are')} in ", Code(RESULTS), " only."))
        )
    blocks += [*_heat_maps(probed), *_refusals(probed)]
    record = {"verdicts": [one for _, one in verdicts], "refusals": probed.manifest.get("refusals", [])}
    return Chapter(Section("probes", "What can be read off the states", tuple(blocks)), tuple(_summary(probed)), record)


def _lead(probed: Probed) -> Paragraph:
    plan = probed.manifest.get("plan", {})
    return Paragraph(
        (
            "A probe is a linear classifier (", Code("mlp"), ": one with a hidden layer) that is trained to tell a "
            "label from states of some prompts and tested on states of others. Each split says which ones are kept for "
            "testing: ", Code("random"),
            ", or whole groups (", Code("root-heldout"),
            " tests on roots that training never saw). Accuracies stand with 95 % intervals from drawing groups anew. ",
            Strong("Controls"),
            " on the same folds: the same probe on random labels that are fixed for each word (what it could learn "
            "by heart), always guessing the majority, probes that see only the characters or the token ids of the "
            "prompt (and apart from it those where the state was taken), and, where there is one, the same probe on a "
            "copy of the model that has learnt nothing. A "
            "result is called above its controls if the 99 % interval of its accuracy minus the best of them lies "
            "above 0, and if it still does when it is made wide enough to hold for all layers, captures and probes of "
            "that label and split at once (corrected: the max-t of Westfall and Young over the same draws). Of fewer "
            "than 8 groups it is only said which number is higher. Where the text gives the label away, probes on the "
            "text may be right without any model, and no state can be above them: the curve then tells at which layers "
            "and tokens the model holds what it has read. Strengths of regularisation were chosen inside training "
            f"folds only (seed {plan.get('seed', 0)}).",
        )
    )  # fmt: skip


def _verdict(rows: Sequence[Row]) -> tuple[Prose, dict[str, Any]]:
    best = max(rows, key=lambda row: row["accuracy"])
    control, value = best_control(best)
    where = f" at layer {best['layer']}" if best["layer"] >= 0 else ""
    enough = enough_groups(best)
    above, alone = ([row["layer"] for row in rows if row[name] and enough] for name in (CORRECTED, ALONE))
    selective = layers_above(rows, "accuracy_low") if enough else []
    said = _told(best, above, alone, selective, [row["layer"] for row in rows]) if enough else _untold(rows)
    prose: Prose = (
        Code(best["label"]), " (", Code(best["split"]), f", {best['probe'].replace('_', ' ')}) from ",
        Quoted(best["capture"]), ": ", Strong(said), f"; best{where}: {percent(best['accuracy'])} "
        f"[{percent(best['accuracy_low'])}, {percent(best['accuracy_high'])}], best control there ({control}) "
        f"{percent(value)}.",
    )  # fmt: skip
    kept = ("label", "split", "probe", "capture", "site", "layer", "accuracy", "accuracy_low", "accuracy_high")
    told = {
        "control": control,
        "control_accuracy": value,
        "enough_groups": enough,
        "above": above,
        "above_uncorrected": alone,
        "selective": selective,
    }
    return prose, {name: best[name] for name in kept} | told


def _told(
    best: Row, above: Sequence[int], alone: Sequence[int], selective: Sequence[int], layers: Sequence[int]
) -> str:
    if above:
        return f"above all controls{layers_said(above, layers)} (corrected for {best['family']} numbers looked at)"
    if alone:
        corrected = f"not when corrected for {best['family']} numbers looked at"
        return f"above all controls{layers_said(alone, layers)} only taken by itself, {corrected}"
    if not selective:
        return "not above its controls anywhere"
    beaten = f"random labels and majority{layers_said(selective, layers)}"
    doubt = _equal(best) or "not surely above all controls"
    return f"its 95 % interval, taken by itself, lies above {beaten}; {doubt}"


def _untold(rows: Sequence[Row]) -> str:
    """What is said of too few groups: which number is higher, which is no statement about other groups."""
    if not (higher := layers_above(rows, "accuracy")):
        return "not higher than random labels and majority anywhere"
    where = layers_said(higher, [row["layer"] for row in rows])
    said = f"higher than random labels and majority{where}, of too few groups to say more"
    equal = _equal(max(rows, key=lambda row: row["accuracy"]))
    return f"{said}; {equal}" if equal else said


def _equal(row: Row) -> str:
    """Controls beyond random labels and majority that give as much; empty for none."""
    rivals = {"the text alone": max(row[name] for name in TEXT), "an untrained model": row[UNTRAINED]}
    equal = [name for name, value in rivals.items() if value >= row["accuracy"]]
    return f"{listed(equal)} give{'s' * (len(equal) == 1)} as much" if equal else ""


def _summary(probed: Probed) -> Iterator[Prose]:
    """One sentence for each label: of its split in which the best state does worst, the capture that does best."""
    by_label: dict[str, dict[str, list[list[Row]]]] = {}
    for rows in strands(probed):
        by_label.setdefault(rows[0]["label"], {}).setdefault(rows[0]["split"], []).append(rows)
    for splits in by_label.values():
        best = [max(told, key=_peak) for told in splits.values()]
        yield ("Probe of ", *_verdict(min(best, key=_peak))[0])
    yield _tally(list(strands(probed)))


def _tally(found: Sequence[Sequence[Row]]) -> Prose:
    """How many curves rise above all controls, among how many that were looked at, and which."""
    above = [rows[0] for rows in found if any(row[CORRECTED] for row in rows)]
    alone = sum(any(row[ALONE] and enough_groups(row) for row in rows) for rows in found)
    named: list[Part] = []
    for row in above[:NAMED]:
        named += [", " if named else ": ", Code(f"{row['label']}, {row['split']}"), " from ", Quoted(row["capture"])]
    more = f" and {len(above) - NAMED} more" if len(above) > NAMED else ""
    return (
        f"Of {count(len(found), 'curve')} (label, split, capture) {len(above) or 'none'} "
        f"{'is' if len(above) < 2 else 'are'} above all controls at some layer", *named,
        f"{more}; uncorrected {alone or 'none'}.",
    )  # fmt: skip


def _peak(rows: Sequence[Row]) -> float:
    return max(float(row["accuracy"]) for row in rows)


def _curves(number: int, label: str, split: str, rows: list[Row]) -> Figure:
    probe = main_probe(rows)
    main = [row for row in rows if row["probe"] == probe]
    captures = list(dict.fromkeys(row["capture"] for row in main))
    beyond_layers = 1 + max(row["layer"] for row in main)
    lines: list[charts.Line] = []
    for i, capture in enumerate(captures[:CURVES]):
        strand = sorted((row for row in main if row["capture"] == capture), key=lambda row: int(row["layer"]))
        places = [_place(row, beyond_layers) for row in strand]
        lines.append(
            charts.Line(
                capture, places, [row["accuracy"] for row in strand], [row["accuracy_low"] for row in strand],
                [row["accuracy_high"] for row in strand], series=i,
            )
        )  # fmt: skip
        for place, name in enumerate(OWN):
            values = [row[name] for row in strand]
            if any(map(math.isfinite, values)):
                told = f"{capture}: {CONTROLS[name]}"
                lines.append(charts.Line(told, places, values, series=i, control=True, marker=i + 2 * place))
    ends = sorted({_place(row, beyond_layers) for row in main})
    lines += _shared([row for row in main if row["capture"] in captures[:CURVES]], (ends[0], ends[-1]))
    sites = listed(list(dict.fromkeys(row["site"] for row in main if row["layer"] == NO_LAYER)))
    drawn = charts.curves(lines, "layer", "accuracy", (-0.02, 1.02), (beyond_layers, sites) if sites else None)
    told = "; ".join(_alt(main, capture) for capture in captures)
    left = len(captures) - CURVES
    more = f" {count(left, 'more capture is', 'more captures are')} in the table only." if left > 0 else ""
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


def _shared(rows: Sequence[Row], ends: tuple[int, int]) -> Iterator[charts.Line]:
    """Controls that are the same for all layers: a line each, and named after captures where those differ in them."""
    for i, name in enumerate(SHARED):
        by_value: dict[float, list[str]] = {}
        for row in rows:
            if math.isfinite(row[name]) and row["capture"] not in (named := by_value.setdefault(row[name], [])):
                named.append(row["capture"])
        for place, (value, captures) in enumerate(by_value.items()):
            said = CONTROLS[name] if len(by_value) == 1 else f"{listed(captures)}: {CONTROLS[name]}"
            yield charts.Line(said, ends, [value] * 2, series=i, control=True, marker=i + 2 * place, shared=True)


def _place(row: Row, beyond_layers: int) -> int:
    """Where a row stands on the axis of layers: before_logits and its like stand after all of them."""
    return beyond_layers if row["layer"] == NO_LAYER else int(row["layer"])


def _alt(rows: Sequence[Row], capture: str) -> str:
    best = max((row for row in rows if row["capture"] == capture), key=lambda row: float(row["accuracy"]))
    control, value = best_control(best)
    where = str(best["site"]) if best["layer"] == NO_LAYER else f"layer {best['layer']}"
    return f"{capture}: best {percent(best['accuracy'])} at {where}, {control} {percent(value)}"


def _numbers(label: str, split: str, rows: Sequence[Row]) -> Table:
    controls = [name for name in CONTROLS if any(math.isfinite(row[name]) for row in rows)]
    head = (
        "probe", "capture", "layer", "accuracy", "95 % interval", "above controls", "uncorrected", "macro-F1",
        *(CONTROLS[name] for name in controls), "above the best", "99 % interval", "corrected",
    )  # fmt: skip
    told = tuple(_row(row, controls) for row in rows)
    return Table(("Probes of ", Code(label), ", split ", Code(split)), head, told)


def _row(row: Row, controls: Sequence[str]) -> Cells:
    def shown(name: str) -> str:
        return f"{row[name]:.3f}" if math.isfinite(row[name]) else ""

    def signed(name: str) -> str:
        return minus(f"{row[name]:+.3f}") if math.isfinite(row[name]) else ""

    def between(name: str) -> str:
        return f"{signed(f'{name}_low')} to {signed(f'{name}_high')}" if math.isfinite(row[f"{name}_low"]) else ""

    return (
        row["probe"].replace("_", " "), Quoted(row["capture"]), Number("–" if row["layer"] < 0 else str(row["layer"])),
        Number(shown("accuracy")), Number(f"{shown('accuracy_low')} to {shown('accuracy_high')}"),
        *(_yes(row, name) for name in (CORRECTED, ALONE)), Number(shown("macro_f1")),
        *(Number(shown(name)) for name in controls),
        Number(signed("margin")), *(Number(between(name)) for name in ("margin", "margin_corrected")),
    )  # fmt: skip


def _yes(row: Row, name: str) -> str:
    return "too few groups" if not enough_groups(row) else "yes" if row[name] else "no"


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
        rows = [row for strand in strands(probed) for row in strand if row["capture"] == capture]
        layers = sorted({row["layer"] for row in rows})
        values = np.full((len(layers), len(problems)), np.nan)
        marked = np.zeros(values.shape, np.bool_)
        for row in rows:
            place = layers.index(row["layer"]), problems.index((row["label"], row["split"]))
            values[place], marked[place] = row["accuracy"], row[CORRECTED]
        names = [f"{label}, {split.replace('-heldout', ' held out')}" for label, split in problems]
        drawn = charts.heat(
            values, [str(layer) for layer in layers], names, label="accuracy", limits=(0.0, 1.0), marked=marked,
            first_row_below=True,
        )  # fmt: skip
        stars = f"{int(marked.sum())} of {marked.size} {'has' if marked.sum() == 1 else 'have'} a star"
        alt = f"Heat map of accuracy by layer and problem for {capture}; {stars}."
        caption: Prose = (
            "Accuracy by layer (first layer below) and problem (label, and what is held out) for ", Quoted(capture),
            ". A star: above all controls, corrected.",
        )  # fmt: skip
        yield Figure(f"probes-{number}", f"All probes of {capture}", alt, caption, drawn.svg, drawn.png)


def _refusals(probed: Probed) -> Iterator[Block]:
    reasons: dict[str, list[str]] = {}
    for one in probed.manifest.get("refusals", []):
        reasons.setdefault(one["reason"], []).append(f"{one['label']}, {one['split']}")
    if reasons:
        yield Paragraph(("Splits that cannot be made from this run, and why:",))
        yield Points(tuple((*codes(names, "; "), ": ", Quoted(reason), ".") for reason, names in reasons.items()))


def probe_warnings(probed: Probed) -> Iterator[Prose]:
    """What about the probes calls for caution."""
    for one in probed.manifest.get("texts", []):
        if one["kept"] < one["found"]:
            whose: Prose = (" beside ", Quoted(one["capture"])) if one["capture"] else ()
            yield (
                f"The {CONTROLS[one['features'] + '_accuracy']} control", *whose,
                f" sees the {one['kept']:,} most frequent of {one['found']:,} features: labels that only rarer ones "
                "tell it may miss.",
            )  # fmt: skip
    for label, split in probed.problems:
        row = probed.of(label, split)[0]
        if row["unseen"]:
            yield (
                "Probe of ", Code(label), ", ", Code(split), f": {count(row['unseen'], 'prompt was', 'prompts were')} "
                "tested whose class no training fold had, and counted as wrong.",
            )  # fmt: skip
    linear = [row for row in probed.rows if row["probe"] != "mlp"]
    if slow := sum(not row["converged"] for row in linear):
        yield (f"{slow} of {len(linear)} probes did not converge: their accuracies may be too low.",)
    networks = [row for row in probed.rows if row["probe"] == "mlp"]
    if ended := sum(not row["converged"] for row in networks):
        steps = probed.manifest.get("mlp", {}).get("steps", "their")
        yield (
            f"{ended} of {len(networks)} probes with a hidden layer, or their controls, are what {steps} steps gave "
            "and not a minimum.",
        )
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
    if len(probed.rows) > 1:
        places = len({(row["capture"], row["site"], row["layer"]) for row in probed.rows})
        yield (
            f"{count(len(problems), 'problem')} at {count(places, 'place')} (a capture at a layer) gave "
            f"{len(probed.rows):,} numbers: the best of several is too good by itself. Whether it is above its "
            "controls is corrected for layers, captures and probes, not for problems.",
        )
