"""Columns between NumPy, Python and Arrow.

Not by `pyarrow.array` and `Array.to_numpy`, whose first call imports pandas where it is installed: half a second and
30 MB in every worker.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import Table

Buffer = NDArray[Any]

NUMPY_KINDS: Final[dict[str, Any]] = {
    "int16": np.dtype("<i2"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "uint8": np.dtype("u1"),
    "float": np.dtype("<f4"),
    "double": np.dtype("<f8"),
    "halffloat": np.dtype("<f2"),
    "bool": np.dtype("?"),
}
"""NumPy's names of the kinds of numbers in the tables, by Arrow's."""


def numbers(values: NDArray[Any]) -> Any:
    """Return a NumPy array of numbers or booleans as an Arrow array, without a copy where their layouts agree."""
    stored = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(stored)])


def texts(values: Sequence[str | None]) -> Any:
    """Return texts as an Arrow array."""
    encoded = [b"" if value is None else value.encode() for value in values]
    offsets = _offsets([len(text) for text in encoded])
    there = np.array([value is not None for value in values], np.bool_)
    validity = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def array_of(values: Sequence[Any], kind: Any) -> Any:
    """Return Python values as an Arrow array of a kind that the tables have."""
    if pa.types.is_list(kind):
        inner = array_of([value for row in values for value in row], kind.value_type)
        return pa.ListArray.from_arrays(numbers(_offsets([len(row) for row in values])), inner, type=kind)
    if pa.types.is_string(kind):
        return texts(values)
    return numbers(np.array(values, NUMPY_KINDS[str(kind)]))


def table_of(columns: Mapping[str, Sequence[Any]], schema: Any) -> Table:
    """Return columns of Python values as a table; raises ValueError unless they are those of the schema."""
    return Table.from_arrays(arrays_of(columns, schema), schema=schema)


def arrays_of(columns: Mapping[str, Sequence[Any]], schema: Any) -> list[Any]:
    """Return columns of Python values as Arrow arrays, in the schema's order; errors as of `table_of`."""
    # Arrow would drop a column that the schema does not name.
    if columns.keys() != set(schema.names):
        raise ValueError(f"columns differ from the schema: {sorted(columns.keys() ^ set(schema.names))}")
    return [array_of(columns[field.name], field.type) for field in schema]


def values_of(array: Any) -> Buffer:
    """Return an Arrow array of numbers or booleans as a NumPy array, without a copy and without pandas."""
    if array.null_count:
        raise ValueError("a column of numbers has nulls; Ember writes none")
    if pa.types.is_boolean(array.type):
        return values_of(array.cast(pa.uint8())).view(np.bool_)
    kind = NUMPY_KINDS[str(array.type)]
    if not len(array):
        return np.array([], kind)
    found: Buffer = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)
    return found


def kind_name(kind: Any) -> str:
    """Return the name of a column's type: `int32`, `string`, `list<int32>`, `float32[64]`.

    Not Arrow's own spelling, which changes with its version and tells how elements are called.
    """
    if pa.types.is_fixed_size_list(kind):
        return f"{kind_name(kind.value_type)}[{kind.list_size}]"
    if pa.types.is_list(kind):
        return f"list<{kind_name(kind.value_type)}>"
    return {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))


def empty_array(kind: Any) -> Any:
    """Return an Arrow array of `kind` without values."""
    return pa.nulls(0, kind)


def leaves(array: Any) -> list[Buffer]:
    """Return the values of an Arrow array as little-endian buffers, without any trace of how Arrow stores them.

    numbers: their bytes; booleans: one byte each; strings: lengths in UTF-8 bytes (int64, -1 for null), then the bytes
    of all; lists: their lengths (int64), then the buffers of their elements; lists of fixed size: only those.
    """
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return leaves(array.flatten())
    if pa.types.is_list(kind):
        return [np.diff(values_of(array.offsets)).astype("<i8"), *leaves(array.flatten())]
    if pa.types.is_string(kind):
        return _text_leaves(array)
    values = values_of(array)
    return [np.ascontiguousarray(values, values.dtype.newbyteorder("<"))]


def _text_leaves(array: Any) -> list[Buffer]:
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets).astype("<i8")
    if array.null_count:
        lengths[values_of(array.is_null())] = -1
    data = array.buffers()[2]
    if data is None or not len(array):
        return [lengths, np.empty(0, np.uint8)]
    return [lengths, np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]]


def _offsets(lengths: Sequence[int]) -> NDArray[np.int32]:
    found = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if found[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"{found[-1]} bytes or elements in one column of a row group, more than Arrow can point at")
    return found.astype(np.int32)
