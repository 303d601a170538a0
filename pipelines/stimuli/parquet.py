"""Stimuli from a Parquet file; the one reader here that needs Arrow."""

import math
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import ConfigError
from pipelines.stimuli.drafts import fail
from pipelines.stimuli.readers import Table, Written

MAX_ROWS: Final = 10_000_000


def read_parquet(path: Path) -> Table:
    """Read all rows. Raises ConfigError for a file that is no Parquet and for columns that are not text or numbers."""
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        if file.metadata.num_rows > MAX_ROWS:
            raise ConfigError(f"{path}: {file.metadata.num_rows} rows, expected at most {MAX_ROWS}; split the file")
        names = tuple(file.schema_arrow.names)
        fail(f"{path}: two columns are called {name!r}" for name in sorted({n for n in names if names.count(n) > 1}))
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None
    fail(
        f"{path}: column {field.name!r} is {field.type}, expected text, numbers or booleans; leave it out of the file"
        for field in table.schema
        if not _plain(field.type)
    )
    try:
        values = {name: _cells(path, name, table.column(name)) for name in names}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: a text column holds bytes that are not UTF-8: {error}") from None
    rows = [(f"{path}: row {i}", {name: values[name][i] for name in names}) for i in range(table.num_rows)]
    return Table(path, names, rows)


def _cells(path: Path, name: str, column: pa.ChunkedArray) -> list[Any]:
    """Values of a column; NaN is no value, and fractions have the fewest digits that give them back as precisely."""
    values: list[Any] = column.to_pylist()
    kind = _values_kind(column.type)
    if not pa.types.is_floating(kind):
        return values
    precise = kind.to_pandas_dtype()
    there = [None if value is None or math.isnan(value) else value for value in values]
    fail(
        f"{path}: row {i}: {name}: found {value}, expected a finite number, a text or no value"
        for i, value in enumerate(there)
        if value is not None and math.isinf(value)
    )
    return [None if value is None else Written(str(precise(value))) for value in there]


def _values_kind(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _plain(kind: pa.DataType) -> bool:
    kind = _values_kind(kind)
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(texts or numbers or pa.types.is_null(kind))
