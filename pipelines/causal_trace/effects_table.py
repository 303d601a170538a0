"""`effects.parquet`: one row for each patch."""

import io
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.causal_trace.effects import Effect
from pipelines.causal_trace.pairs import Place
from pipelines.columns import numbers, texts
from pipelines.errors import RunError
from pipelines.tables import DAMAGE

TEXTS: Final = ("pair", "group", "site", "token", "clean_token", "role")
INTEGERS: Final = ("layer", "position", "clean_position", "from_end", "token_id", "role_index")
FLOATS: Final = ("clean", "corrupt", "patched", "effect", "recovery")


def effects_parquet(effects: Sequence[Effect]) -> bytes:
    """Return the table as the bytes of a Parquet file; `recovery` is NaN where clean and corrupt hardly differ."""
    columns: dict[str, Any] = {name: texts([str(_value(effect, name)) for effect in effects]) for name in TEXTS}
    columns |= {name: numbers(np.array([_value(e, name) for e in effects], np.int32)) for name in INTEGERS}
    columns["changed"] = numbers(np.array([effect.place.changed for effect in effects], np.bool_))
    columns |= {name: numbers(np.array([_value(e, name) for e in effects], np.float64)) for name in FLOATS}
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(list(columns.values()), schema=schema), sink, compression="zstd")
    return sink.getvalue()


def _value(effect: Effect, name: str) -> Any:
    return getattr(effect, name) if hasattr(effect, name) else getattr(effect.place, name)


def read_effects(path: Path) -> list[Effect]:
    """Read `effects.parquet` back; raises RunError for a file that is none."""
    try:
        columns = pq.read_table(path).to_pydict()
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return [_effect(row) for row in rows]
    except (*DAMAGE, KeyError) as error:
        raise RunError(f"{path} cannot be read as the effects of a causal trace ({error}); run it again") from error


def _effect(row: dict[str, Any]) -> Effect:
    place = Place(**{field.name: row[field.name] for field in fields(Place)})
    return Effect(place=place, **{field.name: row[field.name] for field in fields(Effect) if field.name != "place"})
