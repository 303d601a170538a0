"""Results of probes as the report takes them: read, checked, ordered, and compared with their controls."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ember.sites import NO_LAYER
from pipelines.report.beside import PROBES, open_beside, read_rows
from pipelines.report.facts import Facts, Row

RESULTS: Final = "results.parquet"
UNTRAINED: Final = "untrained_accuracy"
"""Of the same probe on a copy of the model that knows nothing; absent or NaN where none was run."""
CONTROLS: Final = {
    "control_accuracy": "random labels",
    "majority_accuracy": "majority",
    "characters_accuracy": "characters",
    "tokens_accuracy": "token ids",
    UNTRAINED: "untrained model",
}
"""Columns of controls, and what they are called."""
CORRECTED: Final = "above_controls_corrected"
"""Whether a row is above its controls when all that was looked at is allowed for."""


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
    found = open_beside(facts, PROBES, folder)
    if found is None:
        return None
    rows = [row for row in read_rows(*found, RESULTS) if row["features"] == "states"]
    return Probed(found[1], tuple({UNTRAINED: math.nan} | _known(row) for row in rows))


def _known(row: Row) -> Row:
    """A row without its nulls, which pandas writes for numbers that there are none of."""
    return {name: math.nan if value is None else value for name, value in row.items()}


def main_probe(rows: Sequence[Row]) -> str:
    """The probe that figures show: logistic regression if there is one, else another linear one."""
    found = list(dict.fromkeys(row["probe"] for row in rows))
    linear = [probe for probe in found if probe != "mlp"]
    return "logistic" if "logistic" in found else (linear or found)[0]


def strands(probed: Probed) -> Iterator[list[Row]]:
    """Rows of each problem and capture, of the main probe, by layer."""
    for label, split in probed.problems:
        rows = probed.of(label, split)
        main = [row for row in rows if row["probe"] == main_probe(rows)]
        for capture in dict.fromkeys((row["capture"], row["site"]) for row in main):
            strand = [row for row in main if (row["capture"], row["site"]) == capture]
            yield sorted(strand, key=lambda row: int(row["layer"]))


def best_control(row: Row) -> tuple[str, float]:
    """The control that came nearest, or beat the probe."""
    found = {said: row[name] for name, said in CONTROLS.items() if math.isfinite(row.get(name, math.nan))}
    name = max(found, key=lambda one: found[one])
    return name, found[name]


def enough_groups(row: Row) -> bool:
    """Whether groups are enough to say anything: of fewer than 8 the sweep makes no interval that could."""
    return math.isfinite(row["margin_corrected_low"])


def layers_above(rows: Sequence[Row], column: str) -> list[int]:
    """Layers where `column` lies above the accuracy on random labels and that of the majority."""
    return [row["layer"] for row in rows if row[column] > max(row["control_accuracy"], row["majority_accuracy"])]


def layers_said(found: Sequence[int], layers: Sequence[int]) -> str:
    """` at layers 1, 3`, ` from layer 2 on`, ` at every captured layer`; nothing for a site without layers."""
    if list(layers) == [NO_LAYER]:
        return ""
    if len(found) == len(layers):
        return " at every captured layer"
    if list(found) == list(layers[-len(found) :]):
        return f" from layer {found[0]} on"
    return f" at layer{'s' * (len(found) > 1)} {', '.join(map(str, found))}"
