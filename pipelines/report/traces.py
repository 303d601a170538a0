"""A causal trace: what came back when single states were put back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipelines.causal_trace.effects import Effect, Panel, average
from pipelines.causal_trace.effects_table import read_effects
from pipelines.causal_trace.heat_map import column_label, draw, picture
from pipelines.causal_trace.pairs import CLEAN, CORRUPT, EVERYWHERE, stimulus_id
from pipelines.causal_trace.runs import BASELINE, PATCHED, control_id, patch_id
from pipelines.causal_trace.tracing import EFFECTS, reads_right_to_left
from pipelines.errors import VerifyError
from pipelines.report.behaviour import slug
from pipelines.report.blocks import (
    Block,
    Cells,
    Chapter,
    Code,
    Figure,
    Number,
    Paragraph,
    Prose,
    Quoted,
    Section,
    Strong,
    Table,
    count,
    percent,
)
from pipelines.report.facts import Facts, read_facts
from pipelines.report.likelihoods import minus

STRONGEST: Final = 3
"""Cells of a panel that are told in the table."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A finished causal trace whose effects agree with its two runs."""

    baseline: Facts
    patched: Facts
    effects: tuple[Effect, ...]


def is_trace(directory: Path) -> bool:
    """Whether a directory holds a finished causal trace rather than a run."""
    return (directory / EFFECTS).is_file() and (directory / BASELINE).is_dir() and (directory / PATCHED).is_dir()


def read_trace(directory: Path) -> Trace:
    """Read a causal trace, checking every file of both runs, and every effect against their scores.

    Raises RunError and VerifyError as `pipelines.load` does, and VerifyError for effects that the runs do not give.
    """
    baseline, patched = (read_facts(directory / which) for which in (BASELINE, PATCHED))
    effects = read_effects(directory / EFFECTS)
    before, after = _scores(baseline), _scores(patched)
    for one in effects:
        told = (one.clean, one.corrupt, one.patched)
        name = patch_id(one.pair, one.site, one.layer, one.place)
        found = (
            before.get(stimulus_id(one.pair, CLEAN)), before.get(stimulus_id(one.pair, CORRUPT)), after.get(name),
        )  # fmt: skip
        if found != told:
            raise VerifyError(
                f"{directory / EFFECTS}: the row of {name!r} has log-probabilities {told}, the two runs give "
                f"{found}; it was made from other runs or edited: run the causal trace again"
            )
    return Trace(baseline, patched, tuple(effects))


def _scores(facts: Facts) -> dict[str, float]:
    return {row["stimulus_id"]: row["expected_log_probability"] for row in facts.answers}


def traced(trace: Trace) -> Chapter:
    """Heat maps and the strongest cells of each panel."""
    panels = average(trace.effects)
    pairs = len({one.pair for one in trace.effects})
    prompts = [row["prompt"] for row in trace.baseline.stimuli]
    blocks: list[Block] = [Paragraph(_lead(trace, pairs, panels))]
    if panels:
        right_to_left = reads_right_to_left(prompts)
        blocks += [_figure(site, panels, right_to_left=right_to_left) for site in dict.fromkeys(p.site for p in panels)]
        blocks.append(_table(panels))
    control = _control(trace)
    blocks += [Paragraph(_control_told(control)), _second_run(trace)]
    record = {
        "control": control,
        "pairs": pairs,
        "patches": len(trace.effects),
        "panels": [_record(panel) for panel in panels],
    }
    return Chapter(
        Section("trace", "What came back when states were put back", tuple(blocks)), _summary(panels), record
    )


def _lead(trace: Trace, pairs: int, panels: Sequence[Panel]) -> Prose:
    sites = list(dict.fromkeys(panel.site for panel in panels))
    named: list[Any] = []
    for site in sites:
        named += [" and ", Code(site)] if named else [Code(site)]
    return (
        f"{count(pairs, 'pair')} of a clean and a corrupt prompt. Corrupt prompts were run {len(trace.effects):,} "
        "times, each time with the state of the clean prompt in place of its own at one site (", *named, "), one layer "
        "and one token (or, in the column ", Code(EVERYWHERE.label), ", at all tokens). ", Strong("Recovery"),
        " is the share of the difference in the log-probability of the clean answer that came back: (patched − "
        "corrupt) / (clean − corrupt), as sums over pairs. 100 % means that the state carries all that makes the "
        "difference; it can exceed 100 % or be negative.",
    )  # fmt: skip


def _control(trace: Trace) -> dict[str, Any]:
    """How near putting back the inputs of all layers at all tokens comes to the clean prompt, pair by pair."""
    before, after = _scores(trace.baseline), _scores(trace.patched)
    pairs = dict.fromkeys(one.pair for one in trace.effects)
    apart = [abs(after[name] - before[stimulus_id(p, CLEAN)]) for p in pairs if (name := control_id(p)) in after]
    return {"pairs": len(apart), "exact": apart.count(0.0), "max_difference": max(apart, default=None)}


def _control_told(found: dict[str, Any]) -> Prose:
    if not found["pairs"]:
        return ("There is no control: no patch put the inputs of all layers back at all tokens.",)
    return (
        Strong("Control"),
        ": with the inputs of all layers put back at all tokens the corrupt prompt must give what the clean one "
        f"gives. It does so exactly for {found['exact']} of {count(found['pairs'], 'pair')}; the largest difference "
        f"is {found['max_difference']:.2g} nats.",
    )  # fmt: skip


def _second_run(trace: Trace) -> Paragraph:
    manifest = trace.patched.manifest
    failed = len(manifest.failed_samples)
    lost = f" {failed} of them failed and have no effect here." if failed else ""
    return Paragraph(
        (
            "Provenance above is that of the run of clean and corrupt prompts as they are; the states were put back "
            "in a "
            f"second run of {count(manifest.samples, 'prompt')}, semantic hash ", Code(manifest.semantic_hash),
            f".{lost}",
        )
    )  # fmt: skip


def _figure(site: str, all_panels: Sequence[Panel], *, right_to_left: bool) -> Figure:
    panels = [panel for panel in all_panels if panel.site == site]
    figure = draw(panels, "", "", right_to_left=right_to_left)
    side = " Prompts are read from right to left: their first token stands at the right." if right_to_left else ""
    alt = f"Heat maps of recovery at {site} by layer and token. " + " ".join(_told(panel) for panel in panels)
    caption: Prose = (
        "Recovery in % at ", Code(site),
        f", by layer (first below) and token. Bold: tokens in which the two prompts differ.{side}",
    )  # fmt: skip
    svg, png = (picture(figure, kind) for kind in ("svg", "png"))
    return Figure(f"trace-{slug(site)}", f"Recovery at {site}", alt, caption, svg, png, paper=True)


def _told(panel: Panel) -> str:
    best = _strongest(panel)[:1]
    most = "".join(f" most, {percent(value)}, at layer {layer}, {where}" for value, layer, where in best)
    return f"{panel.group + ', ' if panel.group else ''}{panel.site}:{most or ' nothing'}."


def _strongest(panel: Panel) -> list[tuple[float, int, str]]:
    cells = [
        (cell.recovery, layer, column_label(column))
        for layer, row in zip(panel.layers, panel.cells, strict=True)
        for column, cell in zip(panel.columns, row, strict=True)
        if math.isfinite(cell.recovery) and column.role != EVERYWHERE.role
    ]
    return sorted(cells, key=lambda cell: -cell[0])[:STRONGEST]


def _table(panels: Sequence[Panel]) -> Table:
    rows: tuple[Cells, ...] = tuple(
        (
            Quoted(panel.group), Code(panel.site), Number(str(panel.pairs)), Number(minus(f"{panel.gap:.3f}")),
            Number(str(layer)), Quoted(where), Number(minus(percent(value))),
        )
        for panel in panels
        for value, layer, where in _strongest(panel)
    )  # fmt: skip
    head = ("group", "site", "pairs", "nats from corrupt to clean", "layer", "token", "recovery")
    return Table(("The cells with the largest recovery in each panel",), head, rows)


def _summary(panels: Sequence[Panel]) -> tuple[Prose, ...]:
    found: list[Prose] = []
    for panel in panels:
        for value, layer, where in _strongest(panel)[:1]:
            group: Prose = (Quoted(panel.group), ": ") if panel.group else ()
            found.append(
                (
                    *group,
                    f"most came back, {minus(percent(value))}, from ",
                    Code(panel.site),
                    f" at layer {layer}, ",
                    Quoted(where),
                    ".",
                )
            )
    return tuple(found)


def _record(panel: Panel) -> dict[str, Any]:
    best = _strongest(panel)[:1]
    return {
        "group": panel.group, "site": panel.site, "pairs": panel.pairs, "gap": panel.gap,
        "strongest": [{"recovery": value, "layer": layer, "token": where} for value, layer, where in best],
    }  # fmt: skip
