"""The schemas of a run's tables, and reading them back.

One schema per table is fixed for a whole run, so that a part without rows, or without expected texts, has the same
columns and types as any other. Only a label that a stimulus does not have is null.

    activations, logits   one row per (capture, site, layer, sample, step, position)
    generations           one row per sample
    stimuli               one row per sample, in sample order; a column `label_<name>` for every label of the run
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import Table as Table

from pipelines.rows import LABEL_PREFIX

Buffer = NDArray[Any]

INDEX_COLUMNS: Final = (
    "sample_index", "stimulus_id", "site", "layer", "capture",
    "step", "position", "token_id", "produced_id", "is_special",
)  # fmt: skip
VALUES: Final = "activation"


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
        ]
    )


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
    return pq.ParquetFile(path, page_checksum_verification=True)


def read_groups(path: Path, columns: Sequence[str] | None = None) -> Iterator[Table]:
    """Row groups of a file, one after the other, as Arrow tables."""
    with open_part(path) as part:
        for i in range(part.num_row_groups):
            yield part.read_row_group(i, columns=list(columns) if columns else None)


def empty_array(kind: Any) -> Any:
    """Return an Arrow array of `kind` without values."""
    return pa.array([], kind)


def leaves(array: Any) -> list[Buffer]:
    """Return the values of an Arrow array as little-endian buffers, without any trace of how Arrow stores them.

    numbers: their bytes; booleans: one byte each; strings: lengths in UTF-8 bytes (int64, -1 for null), then the bytes
    of all; lists: their lengths (int64), then the buffers of their elements; lists of fixed size: only those.
    """
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return leaves(array.flatten())
    if pa.types.is_list(kind):
        return [np.diff(array.offsets.to_numpy()).astype("<i8"), *leaves(array.flatten())]
    if pa.types.is_string(kind):
        return _text_leaves(array)
    values = array.to_numpy(zero_copy_only=not pa.types.is_boolean(kind))
    return [np.ascontiguousarray(values, values.dtype.newbyteorder("<"))]


def _text_leaves(array: Any) -> list[Buffer]:
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets).astype("<i8")
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    data = array.buffers()[2]
    if data is None or not len(array):
        return [lengths, np.empty(0, np.uint8)]
    return [lengths, np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]]
