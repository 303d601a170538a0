"""Hidden states as a whole: how long the vectors are at each layer, and how much they point the same way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipelines import tables
from pipelines.comparison.matching import groups_of
from pipelines.manifest import CaptureRecord
from pipelines.reading import Run
from pipelines.report import charts
from pipelines.report.blocks import Block, Cells, Chapter, Figure, Number, Paragraph, Prose, Quoted, Section, Table
from pipelines.report.facts import Facts
from pipelines.report.likelihoods import minus

PIECE: Final = 2**20
"""Numbers of a row group that are looked at together."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The rows of one capture at one layer."""

    capture: str
    site: str
    layer: int
    rows: int
    median: float
    """Median of the rows' Euclidean norms."""
    low: float
    """Their 5 % point."""
    high: float
    cosine: float
    """Mean cosine between two different rows; NaN for fewer than two."""


def measure(run: Run, capture: CaptureRecord, layer: int) -> LayerShape:
    """Read one layer of a capture, a row group at a time."""
    norms: list[NDArray[np.float64]] = [np.empty(0)]
    total = np.zeros(capture.width)
    for group in groups_of(run, capture, layer):
        with tables.open_part(group.path) as part:
            table = tables.read_group(part, group.index, [tables.VALUES])
        values = np.empty((group.end - group.start, capture.width), np.float32)
        tables.fill(values, table)
        step = max(1, PIECE // capture.width)
        for start in range(0, len(values), step):
            rows = values[start : start + step].astype(np.float64)
            length = np.sqrt(np.square(rows).sum(axis=1))
            norms.append(length)
            total += (rows / np.where(length > 0, length, 1.0)[:, None]).sum(axis=0)
    found = np.concatenate(norms)
    n, zero = len(found), int((found == 0).sum())
    # |sum of unit vectors|^2 counts every pair twice, and each row with itself once.
    cosine = float((total @ total - (n - zero)) / (n * (n - 1))) if n > 1 else float("nan")
    low, median, high = np.quantile(found, [0.05, 0.5, 0.95]) if n else (float("nan"),) * 3
    return LayerShape(capture.name, capture.site, layer, n, float(median), float(low), float(high), cosine)


def states(facts: Facts) -> Chapter | None:
    """Norms and mean cosines of all captures of hidden states; None for a run without any."""
    captures = [one for one in facts.run.captures if one.site != "after_logits"]
    found = {one.name: [measure(facts.run, one, layer) for layer in one.layers] for one in captures}
    found = {name: shapes for name, shapes in found.items() if any(shape.rows for shape in shapes)}
    if not found:
        return None
    layered = {name: shapes for name, shapes in found.items() if shapes[0].layer >= 0}
    blocks: list[Block] = [_lead()]
    if layered:
        blocks += [_norms(layered), _cosines(layered)]
    blocks.append(_table([shape for shapes in found.values() for shape in shapes]))
    record = {name: [_record(shape) for shape in shapes] for name, shapes in found.items()}
    return Chapter(Section("states", "Hidden states as a whole", tuple(blocks)), (), record)


def _record(shape: LayerShape) -> dict[str, Any]:
    cosine = None if np.isnan(shape.cosine) else shape.cosine
    return {"layer": shape.layer, "rows": shape.rows, "median": shape.median, "low": shape.low, "high": shape.high} | {
        "cosine": cosine
    }


def _lead() -> Paragraph:
    return Paragraph(
        (
            "The norm is the Euclidean length of a state. The mean cosine is taken over all pairs of different "
            "rows: near 1 all states point the same way, and differences between prompts are small beside what they "
            "share. Neither says what the states hold.",
        )
    )


def _norms(found: dict[str, list[LayerShape]]) -> Figure:
    lines = [
        charts.Line(
            name, [s.layer for s in shapes], [s.median for s in shapes], [s.low for s in shapes],
            [s.high for s in shapes], series=i,
        )
        for i, (name, shapes) in enumerate(list(found.items())[: len(charts.SERIES)])
    ]  # fmt: skip
    drawn = charts.curves(lines, "layer", "norm of the state")
    ends = "; ".join(
        f"{n}: {s[0].median:.3g} at layer {s[0].layer}, {s[-1].median:.3g} at {s[-1].layer}" for n, s in found.items()
    )
    left = len(found) - len(lines)
    caption: Prose = (
        "Median norm at each layer, with the band that holds the middle 90 % of rows."
        + (f" {left} more captures are in the table only." if left > 0 else ""),
    )
    return Figure("norms", "Norms by layer", f"Median norm by layer. {ends}.", caption, drawn.svg, drawn.png)


def _cosines(found: dict[str, list[LayerShape]]) -> Figure:
    layers = sorted({shape.layer for shapes in found.values() for shape in shapes})
    values = np.full((len(layers), len(found)), np.nan)
    for column, shapes in enumerate(found.values()):
        for shape in shapes:
            values[layers.index(shape.layer), column] = shape.cosine
    drawn = charts.heat(
        values, [str(layer) for layer in layers], list(found), label="mean cosine",
        limits=(min(0.0, _least(values)), 1.0), first_row_below=True,
    )  # fmt: skip
    most = float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
    alt = f"Heat map of the mean cosine between states by layer and capture, from {_least(values):.2f} to {most:.2f}."
    caption: Prose = ("Mean cosine between the states of different rows, by layer (first layer below) and capture.",)
    return Figure("cosines", "How much states point the same way", alt, caption, drawn.svg, drawn.png)


def _least(values: NDArray[np.float64]) -> float:
    return float(np.nanmin(values)) if np.isfinite(values).any() else 0.0


def _table(shapes: Sequence[LayerShape]) -> Table:
    rows: tuple[Cells, ...] = tuple(
        (
            Quoted(s.capture), Number("–" if s.layer < 0 else str(s.layer)), Number(f"{s.rows:,}"),
            *(Number(f"{value:.4g}") for value in (s.median, s.low, s.high)),
            Number("" if np.isnan(s.cosine) else minus(f"{s.cosine:.3f}")),
        )
        for s in shapes
    )  # fmt: skip
    head = ("capture", "layer", "rows", "median norm", "5 % point", "95 % point", "mean cosine")
    return Table(("Norms and mean cosines",), head, rows)
