"""The content hash of a table: over what it says, not over how Parquet or Arrow store it.

Equal for any version of pyarrow, codec, encoding, and however the rows are cut into row groups or batches. Any change
of a value, of its bits, of the order of rows, of a column's name or type changes it.

    column  = sha256( digest of each of its buffers, in order )
    content = sha256( canonical JSON of {"columns": [[name, kind, column], ...], "rows": n} )

Buffers are those of `pipelines.columns.leaves`, kinds those of `pipelines.columns.kind_name`. A buffer's digest is the
SHA-256 of the buffers of all batches joined: lengths and bytes are hashed apart, so that the end of a batch leaves no
trace.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from pipelines import tables
from pipelines.columns import empty_array, kind_name, leaves


class ContentHasher:
    """Takes a table batch by batch, in row order."""

    def __init__(self, schema: Any) -> None:
        self._columns = [(field.name, kind_name(field.type)) for field in schema]
        self._digests: list[list[Any]] = [
            [hashlib.sha256() for _ in leaves(empty_array(field.type))] for field in schema
        ]
        self._rows = 0

    def update(self, batch: tables.Table) -> None:
        """Add rows; `batch` has the schema's columns in the schema's order."""
        self._rows += batch.num_rows
        for column, digests in zip(batch.columns, self._digests, strict=True):
            for chunk in column.chunks:
                for buffer, digest in zip(leaves(chunk), digests, strict=True):
                    digest.update(buffer)

    def hexdigest(self) -> str:
        """Content hash of all rows so far."""
        columns = [
            [name, kind, hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()]
            for (name, kind), digests in zip(self._columns, self._digests, strict=True)
        ]
        told = json.dumps({"columns": columns, "rows": self._rows}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(told.encode()).hexdigest()


def hash_table(table: tables.Table) -> str:
    """Content hash of a table in memory."""
    hasher = ContentHasher(table.schema)
    hasher.update(table)
    return hasher.hexdigest()


def hash_file(path: Path) -> str:
    """Content hash of a Parquet file, one row group in memory at a time, every page's checksum verified."""
    with tables.open_part(path) as part:
        hasher = ContentHasher(part.schema_arrow)
    for group in tables.read_groups(path):
        hasher.update(group)
    return hasher.hexdigest()
