"""Drawing: dots with intervals, curves with bands, heat maps; as PNG, SVG, and SVG that goes into a page.

Needs matplotlib 3.11 (the extra `analysis`), which shapes Arabic and sets it from right to left by itself. Colours are
Okabe and Ito's as far as they stand out on white, and every series has a marker and a dash of its own. In the page
the colours become CSS variables, so that a figure follows the reader's light or dark scheme.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pipelines.report.plain_text import shortened

INK: Final = "#1b1c1d"
GRID: Final = "#d4d5d6"
SERIES: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#5e5f60")
MARKERS: Final = ("o", "s", "^", "D", "v")
DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
VARIABLES: Final = {INK: "--ink", GRID: "--grid", **{colour: f"--series-{i + 1}" for i, colour in enumerate(SERIES)}}
HEAT: Final = "viridis"
HEAT_STEPS: Final = 64
LABEL: Final = 26
"""Characters of a label in a figure; the table beside it has it whole."""
WIDTH: Final = 7.2
"""Inches."""
RC: Final[Any] = {
    "svg.hashsalt": "ember", "svg.fonttype": "path", "text.parse_math": False, "font.family": ["DejaVu Sans"],
    "font.size": 9, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
}  # fmt: skip

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure in its two forms; both are the same bytes for the same numbers and version of matplotlib."""

    png: bytes
    svg: bytes


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: a value at each x, and perhaps the band around it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    series: int = 0
    """Which colour, marker and dash."""
    control: bool = False
    """Drawn thin, dotted and hollow: what the other curves are to be compared with."""
    marker: int | None = None
    """Which marker, if not that of the series."""
    shared: bool = False
    """A control of all other curves: drawn in grey."""


def dots(
    labels: Sequence[str], series: Sequence[tuple[str, Sequence[tuple[float, float, float]]]], x_label: str
) -> Drawn:
    """A row for each label, the first on top, with (value, low, high) of each series as a dot and its interval."""

    def paint(figure: Drawing) -> None:
        axis = figure.subplots()
        step = 0.0 if len(series) == 1 else 0.5 / (len(series) - 1)
        for i, (name, points) in enumerate(series):
            _dot_series(axis, points, i, i * step - 0.25 * (len(series) > 1), name)
        axis.set_yticks(range(len(labels)), [shortened(label, LABEL) for label in labels])
        axis.set_ylim(len(labels) - 0.4, -0.6)
        axis.set(xlim=(-0.02, 1.02), xlabel=x_label)
        axis.grid(axis="x", color=GRID, linewidth=0.7)
        axis.set_axisbelow(True)
        if len(series) > 1:
            axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(series))

    return _draw(paint, 0.9 + 0.26 * len(labels) * (1 if len(series) == 1 else 1.35))


def _dot_series(axis: Axes, points: Sequence[tuple[float, float, float]], i: int, shift: float, name: str) -> None:
    rows = [(y + shift, *point) for y, point in enumerate(points) if math.isfinite(point[0])]
    for y, _, low, high in rows:
        axis.plot([low, high], [y, y], color=SERIES[i], linewidth=2.2, alpha=0.55, solid_capstyle="butt")
    where, values = [row[0] for row in rows], [row[1] for row in rows]
    axis.plot(values, where, MARKERS[i], color=SERIES[i], markersize=6, label=shortened(name, LABEL))


def curves(
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    limits: tuple[float, float] | None = None,
    beyond: tuple[int, str] | None = None,
) -> Drawn:
    """Curves over layers; whole numbers on the x axis, but for the name of the place `beyond` them."""

    def paint(figure: Drawing) -> None:
        axis = figure.subplots()
        for line in lines:
            _curve(axis, line)
        axis.set(xlabel=x_label, ylabel=y_label, **({"ylim": limits} if limits else {}))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        if beyond:
            _name_place(axis, *beyond)
        axis.grid(color=GRID, linewidth=0.7)
        axis.set_axisbelow(True)
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8)

    return _draw(paint, 3.4)


def _name_place(axis: Axes, place: int, name: str) -> None:
    """Give `place`, the last on the x axis, a name; numbers that its name would cover are left out."""
    room = max(1.0, place / 8)
    numbers = [int(x) for x in axis.get_xticks() if 0 <= x <= place - room]
    axis.set_xticks([*numbers, place], [*map(str, numbers), name])


def _curve(axis: Axes, line: Line) -> None:
    colour = SERIES[-1] if line.shared else SERIES[line.series % len(SERIES)]
    marker = MARKERS[(line.series if line.marker is None else line.marker) % len(MARKERS)]
    if len(line.low) == 1:
        # a band of one point has no width
        axis.vlines(line.x, line.low, line.high, color=colour, alpha=0.55, linewidth=2.2)
    elif len(line.low):
        axis.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
    axis.plot(
        line.x, line.y, color=colour, marker=marker, linestyle=":" if line.control else DASHES[line.series % 5],
        linewidth=1.0 if line.control else 1.8, markersize=4.5 if line.control else 5.5,
        markerfacecolor="none" if line.control else colour, label=shortened(line.name, 2 * LABEL),
    )  # fmt: skip


def steps(series: Sequence[tuple[str, Floats]], x_label: str) -> Drawn:
    """Share of values at or below x, for each series."""

    def paint(figure: Drawing) -> None:
        axis = figure.subplots()
        for i, (name, values) in enumerate(series):
            ordered = np.sort(values)
            share = np.arange(1, len(ordered) + 1) / len(ordered)
            axis.step(ordered, share, where="post", color=SERIES[i], linestyle=DASHES[i], linewidth=1.8, label=name)
            axis.plot(ordered[-1:], share[-1:], MARKERS[i], color=SERIES[i], markersize=6)
        axis.set(xlabel=x_label, ylabel="share at or below", ylim=(0, 1.03))
        axis.grid(color=GRID, linewidth=0.7)
        axis.set_axisbelow(True)
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8)

    return _draw(paint, 2.9)


def points(groups: Sequence[tuple[str, Floats]]) -> Drawn:
    """A mark at each of the points [n, 2] of every group."""

    def paint(figure: Drawing) -> None:
        axis = figure.subplots()
        for i, (name, places) in enumerate(groups):
            axis.plot(
                places[:, 0], places[:, 1], MARKERS[i], color=SERIES[i], markersize=4.5, alpha=0.75, linewidth=0,
                label=shortened(name, LABEL),
            )  # fmt: skip
        axis.set(xlabel="first direction", ylabel="second direction")
        axis.grid(color=GRID, linewidth=0.7)
        axis.set_axisbelow(True)
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8)

    return _draw(paint, 4.2)


def heat(
    values: Floats,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str,
    limits: tuple[float, float] | None = None,
    digits: int = 2,
    marked: NDArray[np.bool_] | None = None,
    first_row_below: bool = False,
) -> Drawn:
    """A cell for each of `values` [rows, columns]; NaN is left empty.

    Numbers are written into cells that are few, with a star where `marked`.
    """
    found = values[np.isfinite(values)]
    low, high = limits or ((float(found.min()), float(found.max())) if len(found) else (0.0, 1.0))
    high = high if high > low else low + 1e-9

    def paint(figure: Drawing) -> None:
        axis = figure.subplots()
        colours = matplotlib.colormaps[HEAT].resampled(HEAT_STEPS)
        edges = np.arange(values.shape[1] + 1) - 0.5, np.arange(values.shape[0] + 1) - 0.5
        mesh = axis.pcolormesh(*edges, np.ma.masked_invalid(values), cmap=colours, vmin=low, vmax=high)
        axis.set_xticks(range(len(columns)), [shortened(c, LABEL) for c in columns])
        axis.set_yticks(range(len(rows)), [shortened(r, LABEL) for r in rows])
        if not first_row_below:
            axis.invert_yaxis()
        if max(map(len, columns), default=0) * len(columns) > 60:
            for tick in axis.get_xticklabels():
                tick.set(rotation=40, rotation_mode="anchor", horizontalalignment="right")
        axis.tick_params(length=2)
        if values.size <= 400:
            _numbers(axis, values, (low, high), digits, marked)
        figure.colorbar(mesh, ax=axis, pad=0.015, fraction=0.05, aspect=22).set_label(label)

    return _draw(paint, min(14.0, 1.3 + 0.29 * len(rows) + 0.02 * max(map(len, columns), default=0)))


def _numbers(
    axis: Axes, values: Floats, limits: tuple[float, float], digits: int, marked: NDArray[np.bool_] | None
) -> None:
    low, high = limits
    size = 8 if values.shape[1] <= 12 else 6
    for (y, x), value in np.ndenumerate(values):
        if math.isfinite(value):
            star = "*" if marked is not None and marked[y, x] else ""
            told = f"{value:.{digits}f}{star}".replace("-", "−")
            axis.text(x, y, told, ha="center", va="center", fontsize=size, color=_on(value, low, high))


def _on(value: float, low: float, high: float) -> str:
    """Black or white, whichever stands out more on the cell of a value. Neither is a colour that the page replaces."""
    ground = np.array(matplotlib.colormaps[HEAT].resampled(HEAT_STEPS)((value - low) / (high - low))[:3])
    linear = np.where(ground <= 0.04045, ground / 12.92, ((ground + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return "#000001" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#fffffe"


def _draw(paint: Callable[[Drawing], None], height: float) -> Drawn:
    with matplotlib.rc_context(RC), warnings.catch_warnings():
        # A glyph that the font lacks is drawn as a box; the table beside the figure has the text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Drawing(figsize=(WIDTH, height), layout="constrained")
        paint(figure)
        return Drawn(*(_saved(figure, kind) for kind in ("png", "svg")))


def _saved(figure: Drawing, kind: str) -> bytes:
    sink = io.BytesIO()
    figure.savefig(sink, format=kind, dpi=150, metadata={"Software": None} if kind == "png" else {"Date": None})
    return sink.getvalue()


def inline_svg(svg: bytes, name: str, *, recolour: bool = True) -> str:
    """Return an SVG as markup for a page: ids begin with `name`, no reference to the outside, the page's colours.

    `svg` is what matplotlib wrote: paths, no text of the user.
    """
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    if recolour:
        for colour, variable in VARIABLES.items():
            text = text.replace(colour, f"var({variable})")
        # The ground is the page's own.
        text = text.replace("fill: #ffffff", "fill: none")
    return text
