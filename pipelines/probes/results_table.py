"""results.parquet and classes.parquet: the schemas, writing and reading them."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.probes.metrics import Interval
from pipelines.probes.results import Result

KEYS: Final = ("label", "split", "probe", "features", "capture", "site", "layer")
INTERVALS: Final = ("accuracy", "macro_f1", "margin", "margin_corrected")
SHARES: Final = (
    "control_accuracy", "selectivity",
    "majority_accuracy", "characters_accuracy", "tokens_accuracy", "untrained_accuracy",
    "code_bits", "control_code_bits", "uniform_bits", "revealed",
)  # fmt: skip
COUNTS: Final = ("width", "classes", "rows", "groups", "test_sets", "unseen", "family")
VERDICTS: Final = ("above_controls", "above_controls_corrected", "converged")


def _field(name: str, kind: Any) -> Any:
    return pa.field(name, kind, nullable=False)


def _keys() -> list[Any]:
    texts = [_field(name, pa.string()) for name in KEYS[:-1]]
    return [*texts, _field("layer", pa.int16())]


def results_schema() -> Any:
    """Return the schema of results.parquet."""
    numbers = [_field(f"{name}{end}", pa.float64()) for name in INTERVALS for end in ("", "_low", "_high")]
    lists = [_field(name, pa.list_(_field("element", pa.float64()))) for name in ("strengths",)]
    return pa.schema(
        [
            *_keys(),
            _field("position", pa.string()),
            *(_field(name, pa.int32()) for name in COUNTS),
            *numbers,
            *(_field(name, pa.float64()) for name in SHARES),
            *(_field(name, pa.bool_()) for name in VERDICTS),
            *lists,
        ]
    )


def classes_schema() -> Any:
    """Return the schema of classes.parquet: what became of each class."""
    counts = [_field(name, pa.int32()) for name in ("rows", "predicted", "correct")]
    return pa.schema([*_keys(), _field("class", pa.string()), *counts, _field("f1", pa.float64())])


def results_parquet(results: Sequence[Result], metadata: Mapping[str, str]) -> bytes:
    """Return results.parquet as bytes."""
    return _bytes([_row(result) for result in results], results_schema(), metadata)


def classes_parquet(
    results: Sequence[Result], names: Mapping[tuple[str, str], Sequence[str]], metadata: Mapping[str, str]
) -> bytes:
    """Return classes.parquet as bytes; `names` are the classes of each (label, split)."""
    rows = [row for result in results for row in _class_rows(result, names[result.label, result.split])]
    return _bytes(rows, classes_schema(), metadata)


def _bytes(rows: Sequence[dict[str, Any]], schema: Any, metadata: Mapping[str, str]) -> bytes:
    table = pa.Table.from_pylist(list(rows), schema=schema.with_metadata(dict(metadata)))
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def _key(result: Result) -> dict[str, Any]:
    source = result.source if result.source.capture else None
    told = (source.capture, source.site, source.layer) if source else ("", "", -1)
    return dict(zip(KEYS, (result.label, result.split, result.probe, result.features, *told), strict=True))


def _row(result: Result) -> dict[str, Any]:
    row = _key(result) | {"position": result.source.position, "width": result.source.width}
    for name in INTERVALS:
        interval: Interval = getattr(result, name)
        row |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    plain = (*COUNTS[1:], *SHARES, *VERDICTS, "strengths")
    return row | {name: getattr(result, name) for name in plain}


def _class_rows(result: Result, names: Sequence[str]) -> list[dict[str, Any]]:
    counts, f1 = result.counts, result.counts.f1
    return [
        _key(result)
        | {
            "class": name,
            "rows": int(counts.rows[i]),
            "predicted": int(counts.predicted[i]),
            "correct": int(counts.correct[i]),
            "f1": float(f1[i]),
        }
        for i, name in enumerate(names)
    ]
