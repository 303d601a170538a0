"""Writing the tables of a run.

    activations/part-00000.parquet   one part per unit; one row group per (capture, site, layer), in the captures' order
    logits/part-00000.parquet        the same columns for site after_logits, whose rows are as wide as the vocabulary
    generations/part-00000.parquet   one row per sample
    stimuli.parquet                  one row per sample, at the top

Every write is staged, counted, synced, hashed twice (file bytes; decoded columns) and put in place so that the first
writer wins. Bytes are equal for equal input and the same pyarrow.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines import placing, tables
from pipelines.content import ContentHasher, hash_file
from pipelines.errors import RunError
from pipelines.parts import STIMULI, STIMULI_PATH, PartFile, part_path
from pipelines.tables import LABEL_PREFIX, VALUES

__all__ = [
    "LAYOUT",
    "CaptureRows",
    "GenerationRow",
    "PartFile",
    "write_activations",
    "write_generations",
    "write_logits",
    "write_stimuli",
]

LAYOUT: Final = "ember.layout/v1"
GROUP_BYTES: Final = 100_000_000
"""Largest row group, decoded: viewers refuse much larger ones."""

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CaptureRows:
    """What one capture of a unit yields: R rows at each of its layers."""

    name: str
    site: str
    layers: tuple[int, ...]
    sample_index: Ints
    """[R], as all below."""
    stimulus_id: Sequence[str]
    step: Ints
    """-1 for the prompt, else the decode evaluation."""
    position: Ints
    """Token index in the prompt and its continuation; -1 for a pooled row."""
    token_id: Ints
    """Token read at the position; -1 for a pooled row."""
    produced_id: Ints
    """Token chosen from this row; -1 if none."""
    is_special: NDArray[np.bool_]
    values: NDArray[np.float32]
    """[layers, R, width]."""


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """The continuation of one sample and how it compares with the expected text."""

    sample_index: int
    stimulus_id: str
    prompt_tokens: int
    token_ids: Sequence[int]
    """New tokens only."""
    text: str
    stopped: str
    expected: str | None = None
    expect_mode: str = "exact"
    correct: bool = False
    """By `expect_mode`; False without expected text."""
    match_raw: bool = False
    match_trimmed: bool = False
    match_nfc_trimmed: bool = False


class StimulusTarget(Protocol):
    """Text of a prompt whose tokens can be captured; offsets are bytes of the prompt's UTF-8."""

    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class Stimulus(Protocol):
    """What the table of stimuli takes from `pipelines.stimuli.record.Stimulus`."""

    @property
    def source_index(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def prompt(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def template(self) -> str | None: ...
    @property
    def reveals(self) -> Sequence[str]: ...
    @property
    def target(self) -> StimulusTarget | None: ...
    @property
    def expected(self) -> str | None: ...
    @property
    def expect_mode(self) -> str: ...


class Sample(Protocol):
    """What the table of stimuli takes from `pipelines.plan.PlannedSample`."""

    @property
    def sample_index(self) -> int: ...
    @property
    def stimulus(self) -> Stimulus: ...
    @property
    def tokens(self) -> NDArray[np.int32]: ...
    @property
    def byte_offsets(self) -> Sequence[tuple[int, int]]: ...
    @property
    def span_tokens(self) -> tuple[int, int] | None: ...


@dataclass(frozen=True, slots=True)
class _Job:
    """A file to write."""

    run_dir: Path
    attempt: str
    table: str
    path: str
    sample_start: int
    sample_end: int
    schema: Any
    rows: int
    bytes_needed: int
    split_streams: tuple[str, ...] = ()
    """Float columns stored by byte planes."""

    @property
    def what(self) -> str:
        return f"cannot write {self.path}"


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

    `unit` is its index, or a label of `pipelines.parts.unit_label`; `attempt` names this try and no other. Rows are
    sorted by sample, step and position. Raises RunError for a disk that cannot be written, another content already in
    place, or a value outside the range of `dtype`; ValueError for rows that contradict each other.
    """
    if any(capture.site == "after_logits" for capture in captures):
        raise ValueError("rows of after_logits are as wide as the vocabulary: they go to write_logits")
    span = (sample_start, sample_end)
    return _write_captures("activations", run_dir, unit, attempt, captures, span=span, dtype=dtype, metadata=metadata)


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
    """Write captures of site after_logits as the unit's part of `logits`; as `write_activations` otherwise."""
    if any(capture.site != "after_logits" for capture in captures):
        raise ValueError("only rows of after_logits go to write_logits")
    span = (sample_start, sample_end)
    return _write_captures("logits", run_dir, unit, attempt, captures, span=span, dtype=dtype, metadata=metadata)


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
    """Write a unit's continuations as its part of `generations`, in sample order."""
    ordered = sorted(rows, key=lambda row: row.sample_index)
    _check_samples(np.array([row.sample_index for row in ordered], np.int32), (sample_start, sample_end))
    told = dict(metadata) | _about("generations", unit)
    schema = tables.generations_schema().with_metadata(_encoded(told))
    table = pa.table(_generation_columns(ordered), schema=schema)
    path = part_path("generations", unit)
    job = _Job(run_dir, attempt, "generations", path, sample_start, sample_end, schema, len(ordered), table.nbytes)
    return _write(job, [table])


def write_stimuli(run_dir: Path, samples: Sequence[Sample], *, attempt: str, metadata: Mapping[str, str]) -> PartFile:
    """Write `stimuli.parquet`: one row per planned sample, in sample order, and a column for every label of the run."""
    ordered = sorted(samples, key=lambda sample: sample.sample_index)
    if [sample.sample_index for sample in ordered] != list(range(len(ordered))):
        raise ValueError("sample indices must be 0, 1, … without gaps")
    labels = sorted({name for sample in ordered for name in sample.stimulus.labels})
    told = dict(metadata) | {"ember.layout": LAYOUT, "ember.table": STIMULI}
    schema = tables.stimuli_schema(labels).with_metadata(_encoded(told))
    table = pa.table(_stimulus_columns(ordered, labels), schema=schema)
    job = _Job(run_dir, attempt, STIMULI, STIMULI_PATH, 0, len(ordered), schema, len(ordered), table.nbytes)
    return _write(job, [table])


def _write_captures(
    table: str,
    run_dir: Path,
    unit: int | str,
    attempt: str,
    captures: Sequence[CaptureRows],
    *,
    span: tuple[int, int],
    dtype: str,
    metadata: Mapping[str, str],
) -> PartFile:
    widths = {capture.values.shape[-1] for capture in captures}
    if len(widths) != 1:
        raise ValueError(f"rows of one file have one width, but these captures have {sorted(widths)}")
    width = widths.pop()
    for capture in captures:
        _check_capture(capture, span)
    told = (
        dict(metadata)
        | _about(table, unit)
        | {
            "ember.dtype": dtype,
            "ember.width": str(width),
            "ember.captures": json.dumps([capture.name for capture in captures], ensure_ascii=False),
        }
    )
    schema = tables.activations_schema(width, dtype).with_metadata(_encoded(told))
    rows = sum(len(capture.layers) * len(capture.sample_index) for capture in captures)
    needed = rows * (width * np.dtype(dtype).itemsize + 32)
    # DuckDB cannot read byte planes of float16.
    planes = (f"{VALUES}.list.element",) if dtype == "float32" else ()
    job = _Job(run_dir, attempt, table, part_path(table, unit), *span, schema, rows, needed, planes)
    return _write(job, _capture_groups(captures, schema, dtype))


def _check_capture(capture: CaptureRows, span: tuple[int, int]) -> None:
    n = len(capture.sample_index)
    if capture.values.shape[:2] != (len(capture.layers), n):
        raise ValueError(
            f"capture {capture.name!r}: values have shape {capture.values.shape}, "
            f"expected [{len(capture.layers)} layers, {n} rows, width]"
        )
    columns = (capture.stimulus_id, capture.step, capture.position, capture.token_id, capture.produced_id)
    if any(len(column) != n for column in (*columns, capture.is_special)):
        raise ValueError(f"capture {capture.name!r}: its index columns differ in length from its {n} sample indices")
    _check_samples(capture.sample_index, span)


def _check_samples(sample_index: Ints, span: tuple[int, int]) -> None:
    if len(sample_index) and not span[0] <= sample_index.min() <= sample_index.max() < span[1]:
        raise ValueError(f"a sample index lies outside the unit's range {span[0]} to {span[1]}")


def _capture_groups(captures: Sequence[CaptureRows], schema: Any, dtype: str) -> Iterator[tables.Table]:
    for capture in captures:
        order = np.lexsort((capture.position, capture.step, capture.sample_index))
        in_order = bool((order[1:] > order[:-1]).all())
        index = _index_columns(capture, order)
        for i, layer in enumerate(capture.layers):
            values = capture.values[i] if in_order else capture.values[i][order]
            flat = _stored(values, dtype, capture, layer).reshape(-1)
            n = len(order)
            columns = index | {
                "layer": pa.array(np.full(n, layer, np.int16)),
                VALUES: pa.FixedSizeListArray.from_arrays(pa.array(flat), type=schema.field(VALUES).type),
            }
            yield pa.table([columns[name] for name in schema.names], schema=schema)


def _index_columns(capture: CaptureRows, order: NDArray[np.intp]) -> dict[str, Any]:
    n = len(order)
    keys = np.stack([capture.sample_index, capture.step, capture.position])[:, order]
    if n > 1 and (keys[:, 1:] == keys[:, :-1]).all(axis=0).any():
        raise ValueError(f"capture {capture.name!r} has two rows for the same sample, step and position")
    return {
        "sample_index": pa.array(capture.sample_index[order]),
        "stimulus_id": pa.array([capture.stimulus_id[i] for i in order], pa.string()),
        "site": pa.array([capture.site] * n, pa.string()),
        "capture": pa.array([capture.name] * n, pa.string()),
        "step": pa.array(capture.step[order]),
        "position": pa.array(capture.position[order]),
        "token_id": pa.array(capture.token_id[order]),
        "produced_id": pa.array(capture.produced_id[order]),
        "is_special": pa.array(capture.is_special[order]),
    }


def _stored(values: NDArray[np.float32], dtype: str, capture: CaptureRows, layer: int) -> NDArray[Any]:
    if dtype == "float32":
        return np.ascontiguousarray(values, np.float32)
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(values, dtype)
    lost = np.isinf(stored) & np.isfinite(values)
    if lost.any():
        worst = float(np.abs(values[lost]).max())
        raise RunError(
            f"capture {capture.name!r}, site {capture.site}, layer {layer}: {int(lost.sum())} values up to {worst:.6g} "
            "do not fit float16, whose largest number is 65504; set output.dtype to float32"
        )
    return stored


def _generation_columns(rows: Sequence[GenerationRow]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        name: [getattr(row, name) for row in rows]
        for name in tables.generations_schema().names
        if name not in ("has_expected", "expected", "token_ids")
    }
    columns["token_ids"] = [list(row.token_ids) for row in rows]
    columns["has_expected"] = [row.expected is not None for row in rows]
    columns["expected"] = [row.expected or "" for row in rows]
    return columns


def _stimulus_columns(samples: Sequence[Sample], labels: Sequence[str]) -> dict[str, Any]:
    rows = [_stimulus_row(sample) for sample in samples]
    columns = {name: [row[name] for row in rows] for name in tables.stimuli_schema(()).names}
    return columns | {LABEL_PREFIX + name: [s.stimulus.labels.get(name) for s in samples] for name in labels}


def _stimulus_row(sample: Sample) -> dict[str, Any]:
    stimulus, target, span = sample.stimulus, sample.stimulus.target, sample.span_tokens or (-1, -1)
    return {
        "sample_index": sample.sample_index,
        "source_index": stimulus.source_index,
        "id": stimulus.id,
        "template": stimulus.template or "",
        "prompt": stimulus.prompt,
        "prompt_sha256": hashlib.sha256(stimulus.prompt.encode()).hexdigest(),
        "reveals": list(stimulus.reveals),
        "n_tokens": len(sample.tokens),
        "token_ids": sample.tokens,
        "byte_start": [start for start, _ in sample.byte_offsets],
        "byte_end": [end for _, end in sample.byte_offsets],
        "target_text": target.text if target else "",
        "target_byte_start": target.start if target else -1,
        "target_byte_end": target.end if target else -1,
        "span_first": span[0],
        "span_end": span[1],
        "has_expected": stimulus.expected is not None,
        "expected": stimulus.expected or "",
        "expect_mode": stimulus.expect_mode,
    }


def _about(table: str, unit: int | str) -> dict[str, str]:
    label = Path(part_path(table, unit)).stem.removeprefix("part-")
    return {"ember.layout": LAYOUT, "ember.table": table, "ember.unit": label}


def _encoded(metadata: Mapping[str, str]) -> dict[str, str]:
    # The order of keys changes the bytes of the file.
    return dict(sorted(metadata.items()))


def _write(job: _Job, groups: Sequence[tables.Table] | Iterator[tables.Table]) -> PartFile:
    with (
        placing.disk_errors(job.run_dir, job.what, job.bytes_needed),
        placing.staged(job.run_dir, job.attempt, job.path.replace("/", "-")) as path,
    ):
        content = _write_groups(job, path, groups)
        # An exception inside a write leaves a valid, short file: only the count tells.
        found = pq.read_metadata(path).num_rows
        if found != job.rows:
            raise RunError(
                f"{job.what}: {found} rows reached the file, expected {job.rows}; run the same command again"
            )
        placing.sync_file(path)
        part = _describe(job, path, content)
        if placing.place(path, job.run_dir / job.path):
            return part
        return _first_one(job, part)


def _write_groups(job: _Job, path: Path, groups: Sequence[tables.Table] | Iterator[tables.Table]) -> str:
    hasher = ContentHasher(job.schema)
    options = _options(job.schema, job.split_streams)
    with pq.ParquetWriter(path, job.schema, **options) as writer:
        for group in groups:
            if group.num_rows:
                hasher.update(group)
                per_row = max(1, group.nbytes // group.num_rows)
                writer.write_table(group, row_group_size=max(1, GROUP_BYTES // per_row))
    return hasher.hexdigest()


def _options(schema: Any, split_streams: Sequence[str]) -> dict[str, Any]:
    """Writer options of the measured layout: see docs/architecture.md."""
    text = [_leaf(field) for field in schema if "string" in str(field.type)]
    return {
        "version": "2.6",
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": text,
        "use_byte_stream_split": list(split_streams),
        "write_page_checksum": True,
        "write_page_index": True,
        "write_statistics": [_leaf(field) for field in schema if field.name != VALUES],
    }


def _leaf(field: Any) -> str:
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)


def _describe(job: _Job, path: Path, content: str) -> PartFile:
    return PartFile(
        job.table,
        job.path,
        job.rows,
        path.stat().st_size,
        placing.sha256_file(path),
        content,
        job.sample_start,
        job.sample_end,
    )


def _first_one(job: _Job, mine: PartFile) -> PartFile:
    """Return the record of the file that was in place first; it must say the same as ours."""
    path = job.run_dir / job.path
    if placing.sha256_file(path) == mine.sha256:
        return mine
    theirs = "unreadable"
    with suppress(OSError, pa.ArrowException):
        theirs = hash_file(path)
    if theirs != mine.content_sha256:
        raise RunError(
            f"{job.path} is already there with content {theirs}, and this attempt computed {mine.content_sha256}; "
            "the same unit must give the same values. If the file was damaged, delete it and run the same command again"
        )
    return _describe(job, path, theirs)
