"""Comparing captured rows, layer by layer."""

from dataclasses import dataclass

import numpy as np

from pipelines.comparison.matching import (
    Floats,
    Ints,
    Rows,
    Samples,
    groups_of,
    match_rows,
    paired,
    read_rows,
)
from pipelines.comparison.records import CaptureComparison, LayerComparison, RowName
from pipelines.manifest import CaptureRecord
from pipelines.reading import Run


@dataclass(frozen=True, slots=True)
class Side:
    """A run with its stimuli, and their numbers among the common ones."""

    run: Run
    samples: Samples
    numbers: Ints
    """[samples]; -1 for a stimulus that the other run lacks."""


@dataclass(slots=True)
class Tally:
    """Sums over the rows of one layer."""

    rows: int = 0
    identical: int = 0
    max_relative: float = 0.0
    worst: int | None = None
    """Number of the row of A."""
    cosine_sum: float = 0.0
    cosine_worst: float = 1.0
    not_finite: int = 0
    top1_same: int = 0

    def add(self, rows: Ints, a: Floats, b: Floats) -> None:
        """Count rows [n, width] of A and B."""
        same = (a.view(np.int32) == b.view(np.int32)).all(axis=1)
        self.rows += len(rows)
        self.identical += int(same.sum())
        self.cosine_sum += int(same.sum())
        if same.all():
            self.top1_same += len(rows)
            return
        self.top1_same += int((a.argmax(axis=1) == b.argmax(axis=1)).sum())
        finite = np.isfinite(a).all(axis=1) & np.isfinite(b).all(axis=1)
        self.not_finite += int((~finite & ~same).sum())
        apart = finite & ~same
        if apart.any():
            self._measure(rows[apart], a[apart].astype(np.float64), b[apart].astype(np.float64))

    def _measure(self, rows: Ints, a: np.ndarray, b: np.ndarray) -> None:
        squares_a, squares_b = np.square(a).mean(axis=1), np.square(b).mean(axis=1)
        scale = np.sqrt(np.where(squares_a > 0, squares_a, squares_b))
        # Only -0 against 0 leaves no scale at all.
        relative = np.abs(b - a).max(axis=1) / np.where(scale > 0, scale, 1.0)
        cosine = _cosines(a, b, np.sqrt(squares_a) * np.sqrt(squares_b))
        at = int(relative.argmax())
        if self.worst is None or relative[at] > self.max_relative:
            self.worst, self.max_relative = int(rows[at]), float(relative[at])
        self.cosine_sum += float(cosine.sum())
        self.cosine_worst = min(self.cosine_worst, float(cosine.min()))

    def result(self, layer: int, worst: RowName | None, *, ranked: bool) -> LayerComparison:
        """Sum up; `worst` names the row with the largest difference, `ranked` says that the largest value counts."""
        measured = self.rows - self.not_finite
        return LayerComparison(
            layer=layer,
            rows=self.rows,
            identical=self.identical,
            max_relative=self.max_relative if measured else None,
            worst=worst,
            cosine_mean=self.cosine_sum / measured if measured else None,
            cosine_worst=self.cosine_worst if measured else None,
            not_finite=self.not_finite,
            top1_same=self.top1_same if ranked else None,
        )


def _cosines(a: np.ndarray, b: np.ndarray, product: np.ndarray) -> np.ndarray:
    """Return cosines of rows; `product` is that of their root mean squares. Of 0 and -0, which differ, it is 1."""
    found = np.clip((a * b).mean(axis=1) / np.where(product > 0, product, 1.0), -1.0, 1.0)
    return np.where((a == b).all(axis=1), 1.0, found)


def compare_captures(a: Side, b: Side) -> tuple[list[CaptureComparison], list[str], list[str]]:
    """Compare all captures that both runs have; returns the names of those that only A and only B have as well."""
    pairs = pair_captures(a.run.captures, b.run.captures)
    mine, theirs = {one.name for one, _ in pairs}, {other.name for _, other in pairs}
    return (
        [_compare(a, b, *pair) for pair in pairs],
        [capture.name for capture in a.run.captures if capture.name not in mine],
        [capture.name for capture in b.run.captures if capture.name not in theirs],
    )


def pair_captures(
    a: tuple[CaptureRecord, ...], b: tuple[CaptureRecord, ...]
) -> list[tuple[CaptureRecord, CaptureRecord]]:
    """Pair captures of the same name, site and width; what is left, by site and position where that is unique."""
    named = {(c.name, c.site, c.width): c for c in b}
    found = {c.name: named[key] for c in a if (key := (c.name, c.site, c.width)) in named}
    rest_a = [c for c in a if c.name not in found]
    rest_b = [c for c in b if c.name not in {other.name for other in found.values()}]
    for capture in rest_a:
        key = _kind(capture)
        alike = [c for c in rest_b if _kind(c) == key]
        if len(alike) == 1 and [_kind(c) for c in rest_a].count(key) == 1:
            found[capture.name] = alike[0]
    return [(c, found[c.name]) for c in a if c.name in found]


def _kind(capture: CaptureRecord) -> tuple[str, str, int]:
    return capture.site, capture.position, capture.width


def _compare(a: Side, b: Side, one: CaptureRecord, other: CaptureRecord) -> CaptureComparison:
    rows_a, rows_b = read_rows(a.run, one, a.numbers), read_rows(b.run, other, b.numbers)
    match = match_rows(rows_a, rows_b, by_rank=one.position == other.position)
    matched = int((match >= 0).sum())
    shared = [layer for layer in one.layers if layer in other.layers]
    return CaptureComparison(
        capture=one.name,
        capture_b=other.name,
        site=one.site,
        position=one.position,
        position_b=other.position,
        unmatched_a=int((rows_a.stimulus >= 0).sum()) - matched,
        unmatched_b=int((rows_b.stimulus >= 0).sum()) - matched,
        only_a=tuple(layer for layer in one.layers if layer not in shared),
        only_b=tuple(layer for layer in other.layers if layer not in shared),
        layers=tuple(_layer(a, b, (one, other), layer, rows_a, match) for layer in shared),
    )


def _layer(
    a: Side, b: Side, captures: tuple[CaptureRecord, CaptureRecord], layer: int, rows: Rows, match: Ints
) -> LayerComparison:
    one, other = captures
    tally = Tally()
    for found in paired(groups_of(a.run, one, layer), groups_of(b.run, other, layer), match, one.width):
        tally.add(*found)
    worst = None if tally.worst is None else name_row(a, rows, tally.worst)
    return tally.result(layer, worst, ranked=one.site == "after_logits")


def name_row(a: Side, rows: Rows, at: int) -> RowName:
    """Name a row of A by its stimulus and place."""
    sample = int(np.flatnonzero(a.numbers == rows.stimulus[at])[0])
    return RowName(a.samples.ids[sample], int(rows.step[at]), int(rows.position[at]))
