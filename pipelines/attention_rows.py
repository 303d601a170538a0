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

    def padded(self, start: int, end: int, width: int) -> Floats:
        """Return the weights of queries `start` to `end` as [queries, heads, width]; 0 behind a query's own position.

        `width` is at least the number of positions that the last query sees.
        """
        bounds = self.starts[start * self.heads : end * self.heads + 1]
        out = np.zeros(((end - start) * self.heads, width), np.float32)
        out[np.arange(width) < np.diff(bounds)[:, None]] = self.weights[bounds[0] : bounds[-1]]
        return out.reshape(end - start, self.heads, width)

    def pieces(self, width: int) -> Iterator[Floats]:
        """Give all of it padded to `width`, [queries, heads, width] each, a bounded number of queries at a time."""
        step = max(1, CHUNK // max(1, self.heads * width))
        for start in range(0, len(self.keys), step):
            yield self.padded(start, min(start + step, len(self.keys)), width)


def read_attention(directory: Path, manifest: Manifest, name: str, layer: int) -> Iterator[AttentionGroup]:
    """Read the kept attention called `name` of one layer, a row group at a time, in the order of its rows."""
    for record in manifest.parts_of(ATTENTION):
        with tables.open_part(confined(directory, record)) as part:
            for index in range(part.num_row_groups):
                key = tables.read_group(part, index, ("capture", "layer"))
                if len(key) and (key["capture"][0].as_py(), key["layer"][0].as_py()) == (name, layer):
                    yield _group(tables.read_group(part, index, (*KEYS, "head", "weights")))


def attention_keys(directory: Path, manifest: Manifest, name: str, layer: int) -> tuple[tables.Table, int]:
    """Return the keys of all query positions of one layer, in order, and the number of heads (0 without rows)."""
    keys: list[tables.Table] = []
    heads = 0
    for group in read_attention(directory, manifest, name, layer):
        keys.append(group.keys)
        heads = group.heads
    return tables.joined(keys, tables.attention_schema().empty_table().select(KEYS).schema), heads


def _group(table: tables.Table) -> AttentionGroup:
    heads = int(tables.column(table, "head").max()) + 1
    first = numbers(np.arange(0, len(table), heads))
    return AttentionGroup(table.select(KEYS).take(first), heads, *tables.ragged(table, "weights"))
