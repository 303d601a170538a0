"""How states lie to each other: likeness of layers and of labels, correct beside incorrect, a map, and token counts."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from pipelines.report import charts
from pipelines.report.behaviour import slug
from pipelines.report.beside import GEOMETRY, open_beside, read_rows
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
    Table,
    percent,
)
from pipelines.report.facts import Facts, Row
from pipelines.report.likelihoods import minus

MEASURES: Final = "geometry.parquet"
MAPS: Final = "maps.parquet"
LABELS: Final = 4
"""Labels in one figure."""
COLOURED: Final = len(charts.SERIES)
"""Most classes that a map tells apart."""


def arrangement(facts: Facts) -> Chapter | None:
    """What `ember pipeline geometry` found in the run; None if it was not called."""
    found = open_beside(facts, GEOMETRY)
    if found is None:
        return None
    rows = read_rows(*found, MEASURES)
    captures = list(dict.fromkeys(row["capture"] for row in rows if row["capture"]))
    blocks: list[Block] = [_lead()]
    for number, capture in enumerate(captures, start=1):
        here = [row for row in rows if row["capture"] == capture]
        blocks += [
            *_likeness(number, capture, here),
            *_labels(number, capture, here),
            *_divergence(number, capture, here),
        ]
    blocks += [*_map(facts, read_rows(*found, MAPS)), *_fertility(rows)]
    return Chapter(Section("geometry", "How the states lie to each other", tuple(blocks)), (), {"rows": len(rows)})


def _lead() -> Paragraph:
    return Paragraph(
        (
            "CKA compares two layers by how all pairs of stimuli lie to each other in them: 1 means alike but for "
            "rotation and scale. RSA is the rank correlation of distances between stimuli with a model in which "
            "stimuli of one label are near and all others far; it is compared with the 95 % point of the same label "
            "dealt out anew. Both tell what the bulk of the states is arranged by, which need not be what a probe "
            "can read or the model uses.",
        )
    )


def _likeness(number: int, capture: str, rows: Sequence[Row]) -> Iterator[Block]:
    pairs = [row for row in rows if row["measure"] == "cka" and row["layer"] >= 0]
    layers = sorted({row["layer"] for row in pairs})
    if len(layers) < 2:
        return
    values = np.full((len(layers), len(layers)), np.nan)
    for row in pairs:
        i, j = layers.index(row["layer"]), layers.index(row["other_layer"])
        values[i, j] = values[j, i] = row["value"]
    names = [str(layer) for layer in layers]
    drawn = charts.heat(values, names, names, label="linear CKA", limits=(0.0, 1.0), first_row_below=True)
    ends = values[0, -1]
    alt = f"Heat map of linear CKA between layers of {capture}; first and last layer: {ends:.2f}."
    caption: Prose = ("Linear CKA between the layers of ", Quoted(capture), f"; {pairs[0]['stimuli']:,} stimuli.")
    yield Figure(f"cka-{number}", f"Likeness of layers of {capture}", alt, caption, drawn.svg, drawn.png)


def _labels(number: int, capture: str, rows: Sequence[Row]) -> Iterator[Block]:
    found = [row for row in rows if row["measure"] == "rsa" and row["other"] != "layer"]
    if not found:
        return
    labels = list(dict.fromkeys(row["other"] for row in found))
    lines = []
    for i, label in enumerate(labels[:LABELS]):
        strand = sorted((row for row in found if row["other"] == label), key=lambda row: int(row["layer"]))
        x = [row["layer"] for row in strand]
        lines.append(charts.Line(label, x, [row["value"] for row in strand], series=i))
        chance = [row["baseline"] for row in strand]
        lines.append(charts.Line(f"{label}: dealt anew, 95 %", x, chance, series=i, control=True))
    drawn = charts.curves(lines, "layer", "RSA with the label")
    table: tuple[Cells, ...] = tuple(
        (
            Code(row["other"]), Number(str(row["layer"])), _number(row["value"]), _number(row["baseline"]),
            _number(row["p"]), Number(f"{row['stimuli']:,}"),
        )
        for row in found
    )  # fmt: skip
    best = max(found, key=lambda row: -math.inf if math.isnan(row["value"]) else float(row["value"]))
    alt = f"RSA of {capture} with labels by layer; most: {best['other']} at layer {best['layer']}, {best['value']:.2f}."
    caption: Prose = ("RSA of the states of ", Quoted(capture), " with labels, by layer. Dotted and hollow: by chance.")
    head = ("label", "layer", "RSA", "by chance, 95 %", "p", "stimuli")
    numbers = Table(("RSA of ", Quoted(capture), " with labels"), head, table)
    yield Figure(f"rsa-{number}", f"Labels in {capture}", alt, caption, drawn.svg, drawn.png, numbers)


def _number(value: float) -> Number:
    return Number("" if math.isnan(value) else minus(f"{value:.3f}"))


def _divergence(number: int, capture: str, rows: Sequence[Row]) -> Iterator[Block]:
    found = sorted((row for row in rows if row["measure"] == "divergence"), key=lambda row: int(row["layer"]))
    if len(found) < 2:
        return
    layers = [row["layer"] for row in found]
    lines = [
        charts.Line("right and wrong answers", layers, [row["value"] for row in found]),
        charts.Line("answers shuffled, mean", layers, [row["baseline"] for row in found], control=True),
    ]
    drawn = charts.curves(lines, "layer", "distance of means")
    told = ", ".join(f"{row['p']:.2g} at layer {row['layer']}" for row in found)
    caption: Prose = (
        "How far the mean state of prompts answered right lies from that of prompts answered wrong, ", Quoted(capture),
        f". Share of shuffles that reach it: {told}.",
    )  # fmt: skip
    alt = f"Distance between mean states of right and wrong answers of {capture}, by layer, beside shuffled answers."
    yield Figure(f"divergence-{number}", f"Right and wrong in {capture}", alt, caption, drawn.svg, drawn.png)


def _map(facts: Facts, rows: Sequence[Row]) -> Iterator[Block]:
    """The last layer of the first capture, coloured by the label of most classes that can still be told apart."""
    columns = [column for column in facts.tabulated() if len(column.classes) <= COLOURED]
    if not rows or not columns:
        return
    column = max(columns, key=lambda one: len(one.classes))
    capture = rows[0]["capture"]
    layer = max(row["layer"] for row in rows if row["capture"] == capture)
    here = [row for row in rows if (row["capture"], row["layer"]) == (capture, layer)]
    value = {row["sample_index"]: column.values[i] for i, row in enumerate(facts.stimuli)}
    groups = [
        (name, np.array([(row["x"], row["y"]) for row in here if value.get(row["sample_index"]) == name]))
        for name in column.classes
    ]
    drawn = charts.points([(name, points) for name, points in groups if len(points)])
    shares = f"{percent(here[0]['explained_x'])} and {percent(here[0]['explained_y'])}"
    where = f" after layer {layer}" if layer >= 0 else ""
    caption: Prose = (
        "The two main directions (PCA) of ", Quoted(capture), f"{where}, which hold {shares} of the variance. Marks: ",
        Code(column.name), ". What lies together here need not lie together in all directions.",
    )  # fmt: skip
    alt = f"Scatter plot of the two main directions of {capture}{where}, marked by {column.name}, {len(here)} stimuli."
    yield Figure(f"map-{slug(column.name)}", f"Map of {capture}{where}", alt, caption, drawn.svg, drawn.png)


def _fertility(rows: Sequence[Row]) -> Iterator[Block]:
    units = ("tokens_per_word", "tokens_per_character", "tokens_per_byte")
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["measure"] in units:
            found.setdefault(row["other"], {"stimuli": row["stimuli"]})[row["measure"]] = row["value"]
    if not found:
        return
    table: tuple[Cells, ...] = tuple(
        (Quoted(name), Number(f"{one['stimuli']:,}"), *(Number(f"{one.get(unit, math.nan):.2f}") for unit in units))
        for name, one in found.items()
    )
    head = ("of", "prompts", "tokens per word", "per character", "per byte")
    yield Table(("How many tokens the tokenizer needs",), head, table)
