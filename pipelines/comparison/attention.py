"""Comparing kept attention, layer by layer: a row is one head of one query position."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from pipelines import tables
from pipelines.attention_rows import AttentionGroup, AttentionPlace, attention_keys, attention_places, bounded
from pipelines.comparison.matching import Floats, Ints, Rows, match_rows
from pipelines.comparison.records import CaptureComparison, LayerComparison
from pipelines.comparison.states import Side, Tally, name_row
from pipelines.manifest import AttentionRecord

ATTENTION: Final = "attention"
"""What stands for the site in the records of a comparison."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Kept attention of one run, and what its query positions are."""

    side: Side
    record: AttentionRecord
    rows: Rows
    heads: int

    def places(self, layer: int) -> list[AttentionPlace]:
        """Find the row groups of a layer."""
        return attention_places(self.side.run.directory, self.side.run.manifest, self.record.name, layer)


def compare_attention(a: Side, b: Side) -> tuple[list[CaptureComparison], list[str], list[str]]:
    """Compare all attention that both runs keep; returns the names of what only A and only B have as well."""
    mine, theirs = ([_open(side, record) for record in side.run.manifest.origin.attention] for side in (a, b))
    pairs = _pairs(mine, theirs)
    paired_a, paired_b = {one.record.name for one, _ in pairs}, {other.record.name for _, other in pairs}
    return (
        [_compare(one, other) for one, other in pairs],
        [one.record.name for one in mine if one.record.name not in paired_a],
        [one.record.name for one in theirs if one.record.name not in paired_b],
    )


def _open(side: Side, record: AttentionRecord) -> _Kept:
    keys, heads = attention_keys(side.run.directory, side.run.manifest, record.name, record.layers[0])
    sample, position = (tables.column(keys, name).astype(np.int64) for name in ("sample_index", "position"))
    return _Kept(side, record, Rows(side.numbers[sample], np.full(len(sample), -1), position), heads)


def _pairs(a: Sequence[_Kept], b: Sequence[_Kept]) -> list[tuple[_Kept, _Kept]]:
    """Pair what has the same name and as many heads; what is left, by position and heads where that is unique."""
    found = {x.record.name: y for x in a for y in b if (x.record.name, x.heads) == (y.record.name, y.heads)}
    rest_a = [x for x in a if x.record.name not in found]
    rest_b = [y for y in b if y.record.name not in found]
    for x in rest_a:
        alike = [y for y in rest_b if _kind(y) == _kind(x)]
        if len(alike) == 1 and [_kind(one) for one in rest_a].count(_kind(x)) == 1:
            found[x.record.name] = alike[0]
    return [(x, found[x.record.name]) for x in a if x.record.name in found]


def _kind(kept: _Kept) -> tuple[str, int]:
    return kept.record.position, kept.heads


def _compare(one: _Kept, other: _Kept) -> CaptureComparison:
    same = one.record.position == other.record.position
    match = match_rows(one.rows, other.rows, by_rank=same)
    matched = int((match >= 0).sum())
    shared = [layer for layer in one.record.layers if layer in other.record.layers]
    return CaptureComparison(
        capture=one.record.name,
        capture_b=other.record.name,
        site=ATTENTION,
        position=one.record.position,
        position_b=other.record.position,
        unmatched_a=(int((one.rows.stimulus >= 0).sum()) - matched) * one.heads,
        unmatched_b=(int((other.rows.stimulus >= 0).sum()) - matched) * other.heads,
        only_a=tuple(layer for layer in one.record.layers if layer not in shared),
        only_b=tuple(layer for layer in other.record.layers if layer not in shared),
        layers=tuple(_layer(one, other, layer, match) for layer in shared),
    )


def _layer(one: _Kept, other: _Kept, layer: int, match: Ints) -> LayerComparison:
    tally = Tally()
    for rows, a, b in _aligned(one, other, layer, match):
        tally.add(rows, a, b)
    worst = None
    if tally.worst is not None:
        named = name_row(one.side, one.rows, tally.worst // one.heads)
        worst = replace(named, head=tally.worst % one.heads)
    return tally.result(layer, worst, ranked=True)


def _aligned(one: _Kept, other: _Kept, layer: int, match: Ints) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Read matched rows: numbers of rows of A with A's and B's weights, [n, positions] each, a bounded n at a time.

    Rows of one piece see equally many positions, so that nothing is padded and a row's rms is its own.
    """
    theirs = _Parts(other, layer)
    start = 0
    for place in one.places(layer):
        group = place.read()
        queries = np.flatnonzero(match[start : start + len(group.keys)] >= 0)
        wanted = match[start + queries]
        for home in np.unique(theirs.homes(wanted)):
            there, begin = theirs.read(int(home))
            here = theirs.homes(wanted) == home
            for mine, yours in _alike(group, queries[here], there, wanted[here] - begin):
                yield (
                    ((start + mine)[:, None] * one.heads + np.arange(one.heads)).reshape(-1),
                    *_side_by_side(group, mine, there, yours),
                )
        start += len(group.keys)


def _alike(a: AttentionGroup, mine: Ints, b: AttentionGroup, yours: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Cut pairs of queries into those that see equally many positions, a bounded number of them at a time."""
    seen = np.maximum(a.seen[mine], b.seen[yours])
    for length in np.unique(seen):
        for some in bounded(np.flatnonzero(seen == length), a.heads * int(length)):
            yield mine[some], yours[some]


def _side_by_side(a: AttentionGroup, mine: Ints, b: AttentionGroup, yours: Ints) -> tuple[Floats, Floats]:
    width = int(max(a.seen[mine].max(), b.seen[yours].max()))
    return a.padded(mine, width).reshape(-1, width), b.padded(yours, width).reshape(-1, width)


class _Parts:
    """Row groups of one layer of kept attention by the numbers of their queries; the one read last is kept."""

    def __init__(self, kept: _Kept, layer: int) -> None:
        self._places = kept.places(layer)
        sizes = [len(place.read().keys) for place in self._places]
        self._bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.read = lru_cache(maxsize=1)(self._read)

    def homes(self, queries: Ints) -> Ints:
        """Return the number of the row group that holds each query."""
        return np.searchsorted(self._bounds, queries, "right") - 1

    def _read(self, index: int) -> tuple[AttentionGroup, int]:
        """Return a row group and the number of its first query."""
        return self._places[index].read(), int(self._bounds[index])
