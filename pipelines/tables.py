"""The schemas of a run's tables, and reading them back.

One schema per table is fixed for a whole run, so that a part without rows, or without expected texts, has the same
columns and types as any other. Only a label that a stimulus does not have is null.

    activations, logits   one row per (capture, site, layer, sample, step, position)
    generations           one row per sample
    attention             one row per (capture, layer, sample, position, head)
    stimuli               one row per sample, in sample order; a column `label_<name>` for every label of the run
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import Table as Table

from pipelines.columns import numbers, values_of
from pipelines.rows import LABEL_PREFIX

INDEX_COLUMNS: Final = (
    "sample_index", "stimulus_id", "site", "layer", "capture",
    "step", "position", "token_id", "produced_id", "is_special",
)  # fmt: skip
VALUES: Final = "activation"
DAMAGE: Final = (pa.ArrowException, OSError, ValueError, OverflowError)
"""What reading a file may raise that Ember did not write."""


def _field(name: str, kind: Any) -> Any:
    return pa.field(name, kind, nullable=False)


def _list(kind: Any) -> Any:
    return pa.list_(pa.field("element", kind, nullable=False))


def activations_schema(width: int, dtype: str) -> Any:
    """Return the schema of `activations` and `logits`; `width` numbers of `dtype` (float32 or float16) a row."""
    element = {"float32": pa.float32(), "float16": pa.float16()}[dtype]
    return pa.schema(
        [
            _field("sample_index", pa.int32()),
            _field("stimulus_id", pa.string()),
            _field("site", pa.string()),
            _field("layer", pa.int16()),
            _field("capture", pa.string()),
            _field("step", pa.int32()),
            _field("position", pa.int32()),
            _field("token_id", pa.int32()),
            _field("produced_id", pa.int32()),
            _field("is_special", pa.bool_()),
            _field(VALUES, pa.list_(_field("element", element), width)),
        ]
    )


def index_schema() -> Any:
    """Return the schema of `activations` without the vectors."""
    schema = activations_schema(1, "float32")
    return schema.remove(schema.get_field_index(VALUES))


def generations_schema() -> Any:
    """Return the schema of `generations`."""
    text = ("text", "stopped", "expected", "expect_mode")
    marks = ("has_expected", "correct", "match_raw", "match_trimmed", "match_nfc_trimmed")
    return pa.schema(
        [
            _field("sample_index", pa.int32()),
            _field("stimulus_id", pa.string()),
            _field("prompt_tokens", pa.int32()),
            _field("token_ids", _list(pa.int32())),
            *(_field(name, pa.string()) for name in text),
            *(_field(name, pa.bool_()) for name in marks),
            _field("seed", pa.int64()),
            *(_field(name, kind) for name, kind in _score_kinds().items()),
        ]
    )


def attention_schema() -> Any:
    """Return the schema of `attention`: a row for each layer, query position and head."""
    return pa.schema(
        [
            _field("sample_index", pa.int32()),
            _field("stimulus_id", pa.string()),
            _field("capture", pa.string()),
            _field("layer", pa.int16()),
            _field("head", pa.int16()),
            _field("position", pa.int32()),
            _field("token_id", pa.int32()),
            _field("weights", _list(pa.float32())),
        ]
    )


def _score_kinds() -> dict[str, Any]:
    """Types of the columns that `pipelines.rows.ScoreRow` describes."""
    counts = ("expected_tokens", "expected_bytes", "expected_characters", "expected_rank")
    chosen = ("choice", "choice_per_token", "choice_per_byte")
    return {
        "expected_log_probability": pa.float64(),
        **dict.fromkeys(counts, pa.int32()),
        "expected_token_ids": _list(pa.int32()),
        "expected_log_probabilities": _list(pa.float64()),
        "expected_ranks": _list(pa.int32()),
        "merged": pa.bool_(),
        "choices": _list(pa.string()),
        "choice_log_probabilities": _list(pa.float64()),
        "choice_tokens": _list(pa.int32()),
        "choice_merged": _list(pa.bool_()),
        **dict.fromkeys(chosen, pa.int32()),
        "choice_correct": pa.bool_(),
        "top_ids": _list(pa.int32()),
        "top_log_probabilities": _list(pa.float64()),
    }


def stimuli_schema(labels: Sequence[str]) -> Any:
    """Return the schema of `stimuli.parquet` for a run whose stimuli have `labels`."""
    return pa.schema(
        [
            _field("sample_index", pa.int32()),
            _field("source_index", pa.int32()),
            _field("id", pa.string()),
            _field("template", pa.string()),
            _field("prompt", pa.string()),
            _field("prompt_sha256", pa.string()),
            _field("original_prompt", pa.string()),
            _field("reveals", _list(pa.string())),
            _field("n_tokens", pa.int32()),
            _field("token_ids", _list(pa.int32())),
            _field("byte_start", _list(pa.int32())),
            _field("byte_end", _list(pa.int32())),
            _field("target_text", pa.string()),
            _field("target_byte_start", pa.int32()),
            _field("target_byte_end", pa.int32()),
            _field("span_first", pa.int32()),
            _field("span_end", pa.int32()),
            _field("has_expected", pa.bool_()),
            _field("expected", pa.string()),
            _field("expect_mode", pa.string()),
            *(pa.field(LABEL_PREFIX + name, pa.string()) for name in labels),
        ]
    )


def open_part(path: Path) -> Any:
    """Open a Parquet file so that every page's checksum is verified when it is read."""
    return pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)


def schema_and_count(path: Path) -> tuple[Any, dict[str, str], int]:
    """Return a file's schema without metadata, its metadata, and its number of rows."""
    with open_part(path) as part:
        schema = part.schema_arrow
        metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
        return schema.remove_metadata(), metadata, part.metadata.num_rows


def read_groups(path: Path) -> Iterator[Table]:
    """Row groups of a file, one after the other, as Arrow tables without metadata."""
    with open_part(path) as part:
        for i in range(part.num_row_groups):
            yield part.read_row_group(i).replace_schema_metadata(None)


@dataclass(frozen=True, slots=True)
class Group:
    """A row group of `activations` or `logits`: rows of one capture, site and layer."""

    index: int
    rows: int
    key: tuple[str, str, int]
    """Capture, site and layer."""
    only_step: int | None
    """The step of all its rows; None if they differ."""


def find_groups(part: Any, key: tuple[str, str, int], hint: int = 0) -> list[Group]:
    """Row groups of an open part that hold capture, site and layer `key`; they stand one after the other.

    Told by the statistics in the footer. `hint` is where they begin in another part of the run, most often the same
    place: looking through all groups of a large footer takes longer than reading one. Raises ValueError where a row
    group is not of one capture, site and layer.
    """
    count = part.num_row_groups
    begins = hint < count and group_at(part, hint).key == key and (hint == 0 or group_at(part, hint - 1).key != key)
    start = hint if begins else next((i for i in range(count) if group_at(part, i).key == key), count)
    return list(takewhile(lambda group: group.key == key, (group_at(part, i) for i in range(start, count))))


def group_at(part: Any, index: int) -> Group:
    """Describe a row group of an open part."""
    metadata = part.metadata.row_group(index)
    capture, site, layer = (_only(metadata, name, index) for name in ("capture", "site", "layer"))
    steps = _bounds(metadata, "step")
    only = steps[0] if steps and steps[0] == steps[1] else None
    return Group(index, metadata.num_rows, (str(capture), str(site), int(layer)), only)


def width_of(part: Any) -> int:
    """Numbers in a row of an open part of `activations` or `logits`."""
    return int(part.schema_arrow.field(VALUES).type.list_size)


def _only(metadata: Any, name: str, group: int) -> Any:
    found = _bounds(metadata, name)
    if found is None or found[0] != found[1]:
        raise ValueError(f"row group {group} is not of one {name}, as every one that Ember writes")
    return found[0]


def _bounds(metadata: Any, name: str) -> tuple[Any, Any] | None:
    # Leaf columns stand in the order of the schema, whose only nested column is the last.
    column = metadata.column(INDEX_COLUMNS.index(name))
    if column.path_in_schema != name or not column.is_stats_set or not column.statistics.has_min_max:
        return None
    return column.statistics.min, column.statistics.max


def read_group(part: Any, group: int, columns: Sequence[str]) -> Table:
    """Columns of one row group."""
    # Threads gain nothing on one column, and cost memory.
    return part.read_row_group(group, columns=list(columns), use_threads=False)


def fill(out: NDArray[np.float32], table: Table, keep: NDArray[np.bool_] | None = None) -> None:
    """Copy the vectors of `table` (those to `keep`) into `out` [rows, width], once and without Python lists."""
    start = row = 0
    for chunk in table[VALUES].chunks:
        # flatten, because .values ignores the offset of a slice.
        values = values_of(chunk.flatten()).reshape(len(chunk), -1)
        if keep is not None:
            values = values[keep[row : row + len(chunk)]]
        row += len(chunk)
        out[start : start + len(values)] = values
        start += len(values)


def column(table: Table, name: str) -> NDArray[Any]:
    """Return a column of numbers as a NumPy array."""
    return values_of(table[name].combine_chunks())


def ragged(table: Table, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return a column of lists as its flat values and, for each row, where its values start (rows + 1 numbers)."""
    whole = table[name].combine_chunks()
    starts = values_of(whole.offsets).astype(np.int64)
    return values_of(whole.flatten()), starts - starts[0]


def only_value(table: Table, name: str) -> Any:
    """Return the value that all rows of a column share; raises ValueError if they differ."""
    found = table[name].unique()
    if len(found) != 1:
        raise ValueError(f"a row group has {len(found)} values of {name}, expected one")
    return found[0].as_py()


def same_texts(texts: Any, reference: Any, rows: NDArray[Any]) -> bool:
    """Whether the column `texts` is the column `reference` at `rows`."""
    return bool(texts.combine_chunks().equals(reference.combine_chunks().take(numbers(rows))))


def vectors(values: NDArray[np.float32]) -> Any:
    """Return a matrix [rows, width] as an Arrow array of vectors, without a copy."""
    field = pa.field("element", pa.float32(), nullable=False)
    kind = pa.list_(field, values.shape[1])
    return pa.FixedSizeListArray.from_arrays(numbers(values.reshape(-1)), type=kind)


def beside(left: Table, right: Table, rows: NDArray[Any] | None = None) -> Table:
    """Return `left` with those columns of `right` that it lacks; `rows` says which row of `right` stands at each."""
    more = [name for name in right.column_names if name not in left.column_names]
    chosen = right.select(more) if rows is None else right.select(more).take(numbers(rows))
    for name in more:
        left = left.append_column(chosen.schema.field(name), chosen[name])
    return left


def rows_at(table: Table, rows: NDArray[Any]) -> Table:
    """Return some rows of a table, in the order asked for."""
    return table.take(numbers(rows))


def joined(found: Sequence[Table], schema: Any) -> Table:
    """Return tables as one; `schema` is that of none at all."""
    return pa.concat_tables(found) if found else schema.empty_table()
