"""Kept attention in an export: an array [rows, layers, heads, positions], or CSV."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines import tables
from pipelines.attention_rows import attention_keys, read_attention
from pipelines.export_files import cells, csv_rows
from pipelines.manifest import AttentionRecord, Manifest


@dataclass(frozen=True, slots=True)
class PlannedAttention:
    """Kept attention that is to be written: its rows are query positions."""

    directory: Path
    manifest: Manifest
    record: AttentionRecord
    keys: Any
    """Arrow table [rows]: sample_index, stimulus_id, position, token_id."""
    shape: tuple[int, int, int, int]
    """[rows, layers, heads, positions that the last query sees]."""

    def pieces(self, layer: int) -> Iterator[NDArray[np.float32]]:
        """Give the weights of a layer, [rows, heads, positions] each, in the order of `keys`."""
        for group in read_attention(self.directory, self.manifest, self.record.name, layer):
            yield from group.pieces(self.shape[3])


def plan_attention(directory: Path, manifest: Manifest, record: AttentionRecord) -> PlannedAttention:
    """Read what the rows of kept attention are, the same at each of its layers."""
    keys, heads = attention_keys(directory, manifest, record.name, record.layers[0])
    longest = int(tables.column(keys, "position").max(initial=-1)) + 1
    return PlannedAttention(directory, manifest, record, keys, (len(keys), len(record.layers), heads, longest))


def write_attention_csv(path: Path, planned: PlannedAttention) -> None:
    """Write attention as CSV: a row for each layer, query position and head, and a cell for each attended position.

    Cells behind a query's own position are empty. Numbers have the fewest digits that give back the same float32.
    """
    longest = planned.shape[3]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv_rows(file)
        writer.writerow([*planned.keys.column_names, "layer", "head", *(f"p{i}" for i in range(longest))])
        for layer in planned.record.layers:
            at = 0
            for piece in planned.pieces(layer):
                for key, heads in zip(cells(planned.keys.slice(at, len(piece))), piece, strict=True):
                    seen = key[planned.keys.column_names.index("position")] + 1
                    told = heads[:, :seen].astype(str).tolist()
                    blank = [""] * (longest - seen)
                    writer.writerows((*key, layer, head, *row, *blank) for head, row in enumerate(told))
                at += len(piece)
