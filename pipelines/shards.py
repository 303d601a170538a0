"""Writing the tables of a run.

    activations/part-00000.parquet   one part per unit; one row group per (capture, site, layer), in the captures' order
    logits/part-00000.parquet        the same columns for site after_logits, whose rows are as wide as the vocabulary
    generations/part-00000.parquet   one row per sample
    attention/part-00000.parquet     one row per head, query position and layer
    stimuli.parquet                  one row per sample, at the top

Every write is staged, counted, synced, hashed twice (file bytes; decoded columns) and put in place so that the first
writer wins. Bytes are equal for equal input and the same pyarrow.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines import placing, tables
from pipelines.columns import arrays_of, numbers, table_of, texts
from pipelines.content import ContentHasher, hash_file
from pipelines.errors import RunError
from pipelines.memory import give_back
from pipelines.parts import ATTENTION, LAYOUT, STIMULI, STIMULI_PATH, PartFile, part_path
from pipelines.rows import (
    AttentionRows,
    CaptureRows,
    GenerationRow,
    Sample,
    check_samples,
    generation_columns,
    stimulus_columns,
)
from pipelines.tables import VALUES, Table

__all__ = [
    "CaptureRows",
    "GenerationRow",
    "PartFile",
    "write_activations",
    "write_attention",
    "write_generations",
    "write_logits",
    "write_stimuli",
]

GROUP_BYTES: Final = 100_000_000
"""Largest row group, decoded: viewers refuse much larger ones."""
STIMULI_GROUP: Final = 5_000
"""Stimuli in a row group."""
STIMULI_BATCH: Final = 1_000
"""Stimuli that are Python values at the same time while a row group is made."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A file to write."""

    run_dir: Path
    attempt: str
    table: str
    path: str
    samples: tuple[int, int]
    schema: Any
    rows: int
    bytes_needed: int

    @property
    def target(self) -> Path:
        return self.run_dir / self.path


def write_activations(
    run_dir: Path,
    unit: int | str,
    attempt: str,
    captures: Sequence[CaptureRows],
    *,
    sample_start: int,
    sample_end: int,
    dtype: str = "float32",
    metadata: Mapping[str, str],
) -> PartFile:
    """Write a unit's captures as its part of `activations`.

    `unit` is its index or its piece's name (00003-01); `attempt` names this try and no other. Rows are sorted by
    sample, step and position. Raises RunError for a disk that cannot be written, for other content already in place,
    and for a value outside the range of `dtype`; ValueError for rows that contradict each other.
    """
    if any(capture.site == "after_logits" for capture in captures):
        raise ValueError("rows of after_logits are as wide as the vocabulary: they go to write_logits")
    job = _captures_job("activations", run_dir, unit, attempt, captures, (sample_start, sample_end), dtype, metadata)
    return _write(job, _capture_groups(captures, job.schema, dtype))


def write_logits(
    run_dir: Path,
    unit: int | str,
    attempt: str,
    captures: Sequence[CaptureRows],
    *,
    sample_start: int,
    sample_end: int,
    dtype: str = "float32",
    metadata: Mapping[str, str],
) -> PartFile:
    """Write captures of site after_logits as the unit's part of `logits`; otherwise as `write_activations`."""
    if any(capture.site != "after_logits" for capture in captures):
        raise ValueError("only rows of after_logits go to write_logits")
    job = _captures_job("logits", run_dir, unit, attempt, captures, (sample_start, sample_end), dtype, metadata)
    return _write(job, _capture_groups(captures, job.schema, dtype))


def write_attention(
    run_dir: Path,
    unit: int | str,
    attempt: str,
    captures: Sequence[AttentionRows],
    *,
    sample_start: int,
    sample_end: int,
    metadata: Mapping[str, str],
) -> PartFile:
    """Write a unit's attention weights as its part of `attention`; otherwise as `write_activations`.

    One row group per capture and layer; rows stand in the order of samples, positions and heads.
    """
    for capture in captures:
        check_samples(capture.sample_index, sample_start, sample_end)
    schema = _with_metadata(tables.attention_schema(), ATTENTION, unit, metadata)
    rows = sum(capture.n_rows for capture in captures)
    needed = sum(one.nbytes for capture in captures for one in capture.weights)
    job = _Job(
        run_dir, attempt, ATTENTION, part_path(ATTENTION, unit), (sample_start, sample_end), schema, rows, needed
    )
    return _write(job, _attention_groups(captures, schema))


def _attention_groups(captures: Sequence[AttentionRows], schema: Any) -> Iterator[Table]:
    for capture in captures:
        heads = capture.weights[0].shape[1] if capture.weights else 0
        each = np.repeat(np.arange(len(capture.weights)), heads)
        lengths = np.array([one.shape[2] for one in capture.weights], np.int64)[each]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        index = {name: numbers(getattr(capture, name)[each]) for name in ("sample_index", "position", "token_id")} | {
            "stimulus_id": texts([capture.stimulus_id[i] for i in each.tolist()]),
            "capture": texts([capture.name] * len(each)),
            "head": numbers(np.tile(np.arange(heads, dtype=np.int16), len(capture.weights))),
        }
        for slot, layer in enumerate(capture.layers):
            flat = np.concatenate([np.empty(0, np.float32), *(one[slot].reshape(-1) for one in capture.weights)])
            kind = schema.field("weights").type
            columns = index | {
                "layer": numbers(np.full(len(each), layer, np.int16)),
                "weights": pa.ListArray.from_arrays(numbers(offsets), numbers(flat), type=kind),
            }
            yield Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def write_generations(
    run_dir: Path,
    unit: int | str,
    attempt: str,
    rows: Sequence[GenerationRow],
    *,
    sample_start: int,
    sample_end: int,
    metadata: Mapping[str, str],
) -> PartFile:
    """Write a unit's continuations as its part of `generations`, in sample order; errors as `write_activations`."""
    ordered = sorted(rows, key=lambda row: row.sample_index)
    check_samples(np.array([row.sample_index for row in ordered], np.int32), sample_start, sample_end)
    schema = _with_metadata(tables.generations_schema(), "generations", unit, metadata)
    table = table_of(generation_columns(ordered), schema)
    path, samples = part_path("generations", unit), (sample_start, sample_end)
    job = _Job(run_dir, attempt, "generations", path, samples, schema, len(ordered), table.nbytes)
    return _write(job, [table])


def write_stimuli(run_dir: Path, samples: Sequence[Sample], *, attempt: str, metadata: Mapping[str, str]) -> PartFile:
    """Write `stimuli.parquet`: one row per planned sample, in sample order, and a column for every label of the run."""
    if any(sample.sample_index != place for place, sample in enumerate(samples)):
        samples = sorted(samples, key=lambda sample: sample.sample_index)
    names: set[str] = set()
    needed, count = 0, len(samples)
    for place, sample in enumerate(samples):
        if sample.sample_index != place:
            raise ValueError("sample indices must be 0, 1, … without gaps")
        stimulus = sample.stimulus
        names.update(stimulus.labels)
        needed += 2 * len(stimulus.prompt.encode()) + 12 * len(sample.tokens)
    labels = sorted(names)
    schema = _with_metadata(tables.stimuli_schema(labels), STIMULI, None, metadata)
    job = _Job(run_dir, attempt, STIMULI, STIMULI_PATH, (0, count), schema, count, needed)
    return _write(job, _stimuli_groups(samples, labels, schema))


def _stimuli_groups(samples: Sequence[Sample], labels: Sequence[str], schema: Any) -> Iterator[Table]:
    """Row groups, made of small batches: a row as Python values takes many times its place in a column."""
    for start in range(0, len(samples), STIMULI_GROUP):
        end = min(start + STIMULI_GROUP, len(samples))
        batches = [
            arrays_of(stimulus_columns(samples[i : min(i + STIMULI_BATCH, end)], labels), schema)
            for i in range(start, end, STIMULI_BATCH)
        ]
        yield _joined(batches, schema)
        pa.default_memory_pool().release_unused()
        give_back()


def _joined(batches: Sequence[list[Any]], schema: Any) -> Table:
    """Join batches of arrays, column by column: an array is freed once it is joined, so that few exist twice."""
    for batch in batches:
        batch.reverse()
    arrays = []
    for _ in schema:
        arrays.append(pa.concat_arrays([batch.pop() for batch in batches]))
        give_back()
    return Table.from_arrays(arrays, schema=schema)


def _captures_job(
    table: str,
    run_dir: Path,
    unit: int | str,
    attempt: str,
    captures: Sequence[CaptureRows],
    samples: tuple[int, int],
    dtype: str,
    metadata: Mapping[str, str],
) -> _Job:
    widths = {capture.values.shape[-1] for capture in captures}
    if len(widths) != 1:
        raise ValueError(f"rows of one file have one width, but these captures have {sorted(widths)}")
    width = widths.pop()
    for capture in captures:
        capture.check(*samples)
    names = json.dumps([capture.name for capture in captures], ensure_ascii=False)
    told = dict(metadata) | {"ember.dtype": dtype, "ember.width": str(width), "ember.captures": names}
    schema = _with_metadata(tables.activations_schema(width, dtype), table, unit, told)
    rows = sum(len(capture.layers) * len(capture.sample_index) for capture in captures)
    needed = rows * width * np.dtype(dtype).itemsize
    return _Job(run_dir, attempt, table, part_path(table, unit), samples, schema, rows, needed)


def _with_metadata(schema: Any, table: str, unit: int | str | None, metadata: Mapping[str, str]) -> Any:
    told = dict(metadata) | {"ember.layout": LAYOUT, "ember.table": table}
    if unit is not None:
        told["ember.unit"] = Path(part_path(table, unit)).stem.removeprefix("part-")
    # Sorted, since the order of keys changes the bytes of the file.
    return schema.with_metadata(dict(sorted(told.items())))


def _capture_groups(captures: Sequence[CaptureRows], schema: Any, dtype: str) -> Iterator[Table]:
    """Tables that become row groups: one per capture and layer, in order."""
    for capture in captures:
        order = np.lexsort((capture.position, capture.step, capture.sample_index))
        in_order = bool((order[1:] > order[:-1]).all())
        index = _index_columns(capture, order)
        for i, layer in enumerate(capture.layers):
            values = capture.values[i] if in_order else capture.values[i][order]
            flat = _stored(values, dtype, f"capture {capture.name!r}, site {capture.site}, layer {layer}").reshape(-1)
            columns = index | {
                "layer": numbers(np.full(len(order), layer, np.int16)),
                VALUES: pa.FixedSizeListArray.from_arrays(numbers(flat), type=schema.field(VALUES).type),
            }
            yield Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _index_columns(capture: CaptureRows, order: NDArray[np.intp]) -> dict[str, Any]:
    keys = np.stack([capture.sample_index, capture.step, capture.position])[:, order]
    if (keys[:, 1:] == keys[:, :-1]).all(axis=0).any():
        raise ValueError(f"capture {capture.name!r} has two rows for the same sample, step and position")
    keys_and_ids = ("sample_index", "step", "position", "token_id", "produced_id", "is_special")
    return {name: numbers(getattr(capture, name)[order]) for name in keys_and_ids} | {
        "stimulus_id": texts([capture.stimulus_id[i] for i in order]),
        "site": texts([capture.site] * len(order)),
        "capture": texts([capture.name] * len(order)),
    }


def _stored(values: NDArray[np.float32], dtype: str, where: str) -> NDArray[Any]:
    """Return `values` as stored, C-contiguous; raises RunError where float16 would make an infinity of a number."""
    if dtype == "float32":
        return np.ascontiguousarray(values, np.float32)
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(values, dtype)
    lost = np.isinf(stored) & np.isfinite(values)
    if lost.any():
        raise RunError(
            f"{where}: {int(lost.sum())} values, up to {float(np.abs(values[lost]).max()):.6g}, do not fit float16, "
            "whose largest number is 65504; set output.dtype to float32"
        )
    return stored


def _write(job: _Job, groups: Iterable[Table]) -> PartFile:
    what = f"cannot write {job.path}"
    with (
        placing.disk_errors(job.run_dir, what, job.bytes_needed),
        placing.staged(job.run_dir, job.attempt, job.path.replace("/", "-")) as path,
    ):
        content = _write_groups(job, path, groups)
        # An exception inside a write leaves a valid, short file: only the count tells.
        found = pq.read_metadata(path).num_rows
        if found != job.rows:
            raise RunError(f"{what}: {found} rows reached the file, expected {job.rows}; run the same command again")
        placing.sync_file(path)
        part = _describe(job, path, content)
        return part if placing.place(path, job.target) else _first_one(job, part)


def _write_groups(job: _Job, path: Path, groups: Iterable[Table]) -> str:
    hasher = ContentHasher(job.schema)
    with pq.ParquetWriter(path, job.schema, **_options(job.schema)) as writer:
        for group in groups:
            if group.num_rows:
                hasher.update(group)
                writer.write_table(group, row_group_size=max(1, GROUP_BYTES * group.num_rows // max(1, group.nbytes)))
            # else it would still be there while the next one is made
            del group
    return hasher.hexdigest()


def _options(schema: Any) -> dict[str, Any]:
    """Writer options of the measured layout: zstd-1, byte planes for the floats, page checksums, page index."""
    values = [field for field in schema if pa.types.is_fixed_size_list(field.type)]
    planes = [_leaf(field) for field in values if pa.types.is_float32(field.type.value_type)]
    return {
        "version": "2.6",
        "compression": "zstd",
        "compression_level": 1,
        # Floats in a dictionary make a file larger than the raw numbers.
        "use_dictionary": [_leaf(field) for field in schema if "string" in str(field.type)],
        # Not for float16: DuckDB cannot read that as byte planes.
        "use_byte_stream_split": planes,
        "write_page_checksum": True,
        "write_page_index": True,
        "write_statistics": [_leaf(field) for field in schema if field not in values],
    }


def _leaf(field: Any) -> str:
    nested = pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
    return f"{field.name}.list.element" if nested else str(field.name)


def _describe(job: _Job, path: Path, content: str) -> PartFile:
    size, checksum = path.stat().st_size, placing.sha256_file(path)
    return PartFile(job.table, job.path, job.rows, size, checksum, content, *job.samples)


def _first_one(job: _Job, mine: PartFile) -> PartFile:
    """Return the record of the file that was in place first; it must say the same as ours."""
    if placing.sha256_file(job.target) == mine.sha256:
        return mine
    theirs = "that cannot be read"
    with suppress(OSError, pa.ArrowException):
        theirs = hash_file(job.target)
    if theirs != mine.content_sha256:
        raise RunError(
            f"{job.path} is already there with content {theirs}, and this attempt computed {mine.content_sha256}; "
            "the same unit must give the same values. If the file was damaged, delete it and run the same command again"
        )
    return _describe(job, job.target, theirs)
