"""A run as data frames and as a database, for those who do not want matrices.

Each library is imported when it is asked for. pandas and polars get one table in memory; DuckDB gets views over the
run's own files, of which it reads what a query needs.
"""

import importlib
from pathlib import Path
from typing import Any

from ember.errors import InputError
from pipelines.manifest import Manifest
from pipelines.parts import EXPERIMENTS, confined


def library(name: str) -> Any:
    """Import pandas, polars or duckdb; raises InputError naming the package where it is absent."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{name} is not installed ({error}); install it: pip install {name}") from None


def pandas_frame(table: Any) -> Any:
    """Return an Arrow table as a pandas DataFrame; vectors become a column of arrays."""
    library("pandas")
    return table.to_pandas()


def polars_frame(table: Any) -> Any:
    """Return an Arrow table as a polars DataFrame; vectors become a column of type Array."""
    return library("polars").from_arrow(table)


def database(run_dir: Path, manifest: Manifest) -> Any:
    """Return a DuckDB connection in memory with a view for each table of a run: stimuli, activations and so on.

    In views of vectors the column `activation` has the type FLOAT[width], which DuckDB's functions on arrays need,
    where all rows of the table are of one width.
    """
    connection = library("duckdb").connect()
    widths = {capture.table: capture.width for capture in manifest.origin.captures}
    for table in dict.fromkeys(part.table for part in manifest.parts):
        paths = [str(confined(run_dir, part).absolute()) for part in manifest.parts_of(table)]
        listed = ", ".join(map(_quoted, paths))
        reader = "read_json_auto" if table == EXPERIMENTS else "read_parquet"
        columns = f"* replace (activation::FLOAT[{widths[table]}] as activation)" if table in widths else "*"
        connection.execute(f'create view "{table}" as select {columns} from {reader}([{listed}])')
    return connection


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
