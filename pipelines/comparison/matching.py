"""Which row of one run stands for which row of the other, and reading both side by side.

Only index columns are held for a whole capture; vectors are read a row group at a time, one of each run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines import tables
from pipelines.columns import values_of
from pipelines.manifest import CaptureRecord
from pipelines.parts import STIMULI, confined
from pipelines.reading import Run

CHUNK: Final = 2**20
"""Numbers of a row group that are looked at together."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Samples:
    """The stimuli of a run, in sample order."""

    ids: tuple[str, ...]
    prompts: tuple[str, ...]
    """Hashes of the prompts."""
    tokens: NDArray[np.int32]
    starts: Ints
    """[samples + 1] where each sample's tokens start."""

    def tokens_of(self, sample: int) -> NDArray[np.int32]:
        """Token ids of a sample's prompt."""
        return self.tokens[self.starts[sample] : self.starts[sample + 1]]


@dataclass(frozen=True, slots=True)
class Group:
    """A row group of a capture's layer, and which of its rows it holds."""

    path: Path
    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The keys of a capture's rows, the same at each of its layers."""

    stimulus: Ints
    """Number of the row's stimulus among the common ones; -1 for any other."""
    step: Ints
    position: Ints

    @property
    def ranks(self) -> Ints:
        """For each row, how many rows of the same stimulus and step stand before it."""
        n = len(self.stimulus)
        fresh = np.ones(n, np.bool_)
        fresh[1:] = (np.diff(self.stimulus) != 0) | (np.diff(self.step) != 0)
        return np.arange(n) - np.maximum.accumulate(np.where(fresh, np.arange(n), 0))


def read_samples(run: Run) -> Samples:
    """Read ids and tokens of a run's stimuli."""
    names = ["id", "prompt_sha256", "token_ids"]
    found = []
    for record in run.manifest.parts_of(STIMULI):
        with tables.open_part(confined(run.directory, record)) as part:
            found += [tables.read_group(part, group, names) for group in range(part.num_row_groups)]
    table = tables.joined(found, tables.stimuli_schema(()).empty_table().select(names).schema)
    return Samples(
        tuple(table["id"].to_pylist()), tuple(table["prompt_sha256"].to_pylist()), *tables.ragged(table, "token_ids")
    )


def read_rows(run: Run, capture: CaptureRecord, numbers: Ints) -> Rows:
    """Read the keys of a capture; `numbers` gives each sample's stimulus its number among the common ones."""
    found: list[NDArray[np.int32]] = []
    for group in groups_of(run, capture, capture.layers[0]):
        with tables.open_part(group.path) as part:
            table = tables.read_group(part, group.index, ("sample_index", "step", "position"))
        found.append(np.stack([values_of(table[name].combine_chunks()) for name in table.column_names]))
    sample, step, position = np.concatenate([np.empty((3, 0), np.int32), *found], axis=1).astype(np.int64)
    return Rows(numbers[sample], step, position)


def groups_of(run: Run, capture: CaptureRecord, layer: int) -> list[Group]:
    """Row groups of a capture's layer, in the order of their rows."""
    found: list[Group] = []
    begin = at = 0
    for record in run.manifest.parts_of(capture.table):
        path = confined(run.directory, record)
        with tables.open_part(path) as part:
            groups = tables.find_groups(part, (capture.name, capture.site, layer), begin)
        begin = groups[0].index if groups else begin
        for group in groups:
            found.append(Group(path, group.index, at, at + group.rows))
            at += group.rows
    return found


def match_rows(a: Rows, b: Rows, *, by_rank: bool) -> Ints:
    """For each row of `a`, the number of the row of `b` that stands for it, or -1.

    They share stimulus and step and, `by_rank`, their place among the rows of these, else the position.
    """
    places = (a.ranks, b.ranks) if by_rank else (a.position, b.position)
    steps, positions = np.concatenate([a.step, b.step]), np.concatenate(places)
    # Numbered anew, so that three keys fit into one integer whatever they are.
    _, inner = np.unique((steps << 32) | (positions + 1), return_inverse=True)
    keys = np.concatenate([a.stimulus, b.stimulus]) * (inner.max(initial=0) + 1) + inner
    keys_a, keys_b = keys[: len(a.step)], keys[len(a.step) :]
    if not len(keys_b):
        return np.full(len(keys_a), -1)
    order = np.argsort(keys_b, kind="stable")
    at = order[np.minimum(np.searchsorted(keys_b[order], keys_a), len(order) - 1)]
    there = (keys_b[at] == keys_a) & (a.stimulus >= 0)
    return np.where(there, at, -1)


def paired(a: list[Group], b: list[Group], match: Ints, width: int) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Read matched rows: numbers of rows of A with A's and B's vectors, [n, width] each, a bounded n at a time."""
    bounds = np.array([group.start for group in b], np.int64)
    for group in a:
        rows = group.start + np.flatnonzero(match[group.start : group.end] >= 0)
        if not len(rows):
            continue
        values = _read(group, width)
        homes = np.searchsorted(bounds, match[rows], "right") - 1
        for home in np.unique(homes):
            other = _read(b[home], width)
            here = rows[homes == home]
            step = max(1, CHUNK // width)
            for start in range(0, len(here), step):
                part = here[start : start + step]
                yield part, values[part - group.start], other[match[part] - b[home].start]


def _read(group: Group, width: int) -> Floats:
    out = np.empty((group.end - group.start, width), np.float32)
    with tables.open_part(group.path) as part:
        tables.fill(out, tables.read_group(part, group.index, [tables.VALUES]))
    return out
