"""Drawing the means of a causal trace: layers by places in the prompt, one panel for each group and site.

Needs matplotlib 3.11 (the extra `analysis`), which shapes Arabic and sets it from right to left by itself.
"""

import io
import math
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from pipelines.causal_trace.effects import Column, Panel
from pipelines.causal_trace.pairs import EVERYWHERE

COLOURS: Final = "PuOr_r"
"""Diverging, and told apart by colour-blind readers: orange where the answer became likelier, violet where less."""
ANNOTATED: Final = 32
"""Most columns of a panel whose cells show their numbers."""
LEVEL: Final = 9
"""Characters of a label that still stand level."""
WIDEST: Final = 40.0
"""Inches that no side of a figure exceeds."""
FEW: Final = 12
"""Layers that are drawn high."""
TATWEEL: Final = "ـ"
RC: Final[dict[Any, Any]] = {"svg.hashsalt": "ember", "svg.fonttype": "path", "text.parse_math": False}
"""Names and tokens of the user are no formulas, whatever dollar signs are in them."""


@matplotlib.rc_context(RC)
def draw(panels: Sequence[Panel], title: str, caption: str, *, right_to_left: bool) -> Figure:
    """Draw a panel for each group (from top to bottom) and site (side by side).

    With `right_to_left` a prompt's first token stands at the right.
    """
    groups, sites = ([*dict.fromkeys(getattr(panel, what) for panel in panels)] for what in ("group", "site"))
    heights = [max(len(panel.layers) for panel in panels if panel.group == group) for group in groups]
    columns = max(len(panel.columns) for panel in panels)
    size = (
        min(WIDEST, 1.9 + (0.3 + 0.62 * columns) * len(sites)),
        min(WIDEST, 1.4 + 0.8 * len(groups) + (0.29 if max(heights) <= FEW else 0.2) * sum(heights)),
    )
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(groups), len(sites), squeeze=False, height_ratios=heights)
    norm = TwoSlopeNorm(0.0, -_limit(panels), _limit(panels))
    for axis in axes.flat:
        axis.set_visible(False)
    for panel in panels:
        axis = axes[groups.index(panel.group), sites.index(panel.site)]
        image = _panel(axis, panel, norm, right_to_left=right_to_left)
    # The bar is as wide as a third of a cell, whatever the figure's size.
    bar = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.015, aspect=10 * size[1], fraction=0.3 / size[0])
    bar.set_label("recovered share of the difference", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    figure.suptitle(title, fontsize=10)
    told = textwrap.fill(caption, int(15 * size[0]))
    figure.supxlabel(told, fontsize=7.5, x=0.01, ha="left", multialignment="left", color="0.25")
    return figure


def picture(figure: Figure, kind: str) -> bytes:
    """Return a figure as the bytes of a `png` or `svg`, the same for the same figure."""
    sink = io.BytesIO()
    with matplotlib.rc_context(RC):
        figure.savefig(sink, format=kind, dpi=140, metadata={"Software": None} if kind == "png" else {"Date": None})
    return sink.getvalue()


def _limit(panels: Sequence[Panel]) -> float:
    found = [abs(cell.recovery) for panel in panels for row in panel.cells for cell in row]
    return max([0.01, *(value for value in found if math.isfinite(value))])


def _panel(axis: Axes, panel: Panel, norm: TwoSlopeNorm, *, right_to_left: bool) -> Any:
    axis.set_visible(True)
    values = np.array([[cell.recovery for cell in row] for row in panel.cells], np.float64)
    colours = matplotlib.colormaps[COLOURS].with_extremes(bad="0.85")
    image = axis.imshow(np.ma.masked_invalid(values), cmap=colours, norm=norm, origin="lower", aspect="auto")
    axis.set_yticks(range(len(panel.layers)), [str(layer) for layer in panel.layers], fontsize=7)
    axis.set_ylabel("layer", fontsize=8)
    labels = [column_label(column) for column in panel.columns]
    axis.set_xticks(range(len(labels)), labels, fontsize=7.5)
    if max(map(len, labels)) > LEVEL:
        for tick in axis.get_xticklabels():
            tick.set(rotation=50, rotation_mode="anchor", horizontalalignment="right")
    for tick, column in zip(axis.get_xticklabels(), panel.columns, strict=True):
        tick.set_fontweight("bold" if column.changed else "normal")
    axis.tick_params(length=2)
    if panel.columns[-1].role == EVERYWHERE.role:
        axis.axvline(len(panel.columns) - 1.5, color="0.4", linewidth=0.8)
    named = f"{panel.group}: " if panel.group else ""
    pairs = f"{panel.pairs} pair{'s' * (panel.pairs > 1)}"
    axis.set_title(f"{named}{panel.site}, {pairs}, {panel.gap:.2f} nats from corrupt to clean", fontsize=8.5)
    if len(labels) <= ANNOTATED:
        _write_numbers(axis, values, norm)
    if right_to_left:
        axis.invert_xaxis()
    return image


def _write_numbers(axis: Axes, values: np.ndarray, norm: TwoSlopeNorm) -> None:
    for (y, x), value in np.ndenumerate(values):
        if math.isfinite(value) and round(100 * value):
            strong = abs(float(norm(value)) - 0.5) > 0.3
            told = f"{100 * value:.0f}".replace("-", "−")
            axis.text(x, y, told, ha="center", va="center", fontsize=6.5, color="white" if strong else "0.15")


def column_label(column: Column) -> str:
    """Say what stands in a column: the token, where all pairs have the same, else the part and the place in it.

    All tokens at once are `all`.
    """
    if column.role == EVERYWHERE.role:
        return EVERYWHERE.label
    if not column.token:
        return f"{column.role} {column.role_index + 1}"
    text = column.token.strip()
    if not text:
        return "␣"
    # A mark needs a letter to stand on.
    return TATWEEL + text if unicodedata.combining(text[0]) else text
