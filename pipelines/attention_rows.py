"""Reading kept attention a part at a time.

A row of the table is one head of one query position; here all heads of a query stand together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines import tables
from pipelines.columns import numbers
from pipelines.manifest import Manifest
from pipelines.parts import ATTENTION, confined

CHUNK: Final = 2**20
"""Numbers that are laid out together."""
KEYS: Final = ("sample_index", "stimulus_id", "position", "token_id")
"""Columns that say whose attention it is."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Attention of one capture and layer in one part of a run: Q query positions, of H heads each."""

    keys: tables.Table
    """[Q] the columns of `KEYS`."""
    heads: int
    weights: Floats
    """Of all queries and heads, one after the other."""
    starts: NDArray[np.int64]
    """[Q * H + 1] where the weights of each query and head start."""

    @property
    def seen(self) -> NDArray[np.int64]:
        """[Q] how many positions each query sees."""
        return np.diff(self.starts)[:: self.heads]

    def padded(self, queries: NDArray[np.int64], width: int) -> Floats:
        """Return weights of some queries as [queries, heads, width], 0 behind what a query sees; it sees up to `width`.

        The array is as large as `bounded` allows if `queries` are.
        """
        rows = (queries[:, None] * self.heads + np.arange(self.heads)).reshape(-1)
        at = self.starts[rows][:, None] + np.arange(width)
        out = np.where(at < self.starts[rows + 1][:, None], self.weights[np.minimum(at, len(self.weights) - 1)], 0)
        return out.astype(np.float32, copy=False).reshape(len(queries), self.heads, width)

    def pieces(self, width: int) -> Iterator[Floats]:
        """Give all of it padded to `width`, [queries, heads, width] each, a bounded number of queries at a time."""
        for queries in bounded(np.arange(len(self.keys)), self.heads * width):
            yield self.padded(queries, width)


def bounded(rows: NDArray[np.int64], numbers_each: int) -> Iterator[NDArray[np.int64]]:
    """Give rows of `numbers_each` numbers a bounded number at a time."""
    step = max(1, CHUNK // max(1, numbers_each))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


@dataclass(frozen=True, slots=True)
class AttentionPlace:
    """Where a row group of kept attention lies."""

    path: Path
    index: int

    def read(self) -> AttentionGroup:
        """Read it."""
        with tables.open_part(self.path) as part:
            table = tables.read_group(part, self.index, (*KEYS, "head", "weights"))
        heads = int(tables.column(table, "head").max()) + 1
        first = numbers(np.arange(0, len(table), heads))
        return AttentionGroup(table.select(KEYS).take(first), heads, *tables.ragged(table, "weights"))


def attention_places(directory: Path, manifest: Manifest, name: str, layer: int) -> list[AttentionPlace]:
    """Find the row groups of the kept attention called `name` of one layer, in the order of their rows."""
    found = []
    for record in manifest.parts_of(ATTENTION):
        path = confined(directory, record)
        with tables.open_part(path) as part:
            for index in range(part.num_row_groups):
                key = tables.read_group(part, index, ("capture", "layer"))
                if len(key) and (key["capture"][0].as_py(), key["layer"][0].as_py()) == (name, layer):
                    found.append(AttentionPlace(path, index))
    return found


def read_attention(directory: Path, manifest: Manifest, name: str, layer: int) -> Iterator[AttentionGroup]:
    """Read the kept attention called `name` of one layer, a row group at a time, in the order of its rows."""
    return (place.read() for place in attention_places(directory, manifest, name, layer))


def attention_keys(directory: Path, manifest: Manifest, name: str, layer: int) -> tuple[tables.Table, int]:
    """Return the keys of all query positions of one layer, in order, and the number of heads (0 without rows)."""
    keys: list[tables.Table] = []
    heads = 0
    for group in read_attention(directory, manifest, name, layer):
        keys.append(group.keys)
        heads = group.heads
    return tables.joined(keys, tables.attention_schema().empty_table().select(KEYS).schema), heads
