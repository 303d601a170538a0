"""Writing a finished run in formats that need no Parquet reader: NumPy arrays, or CSV.

    export_run("outputs/roots", "npy")      # writes outputs/roots-npy/

npy: NAME_CAPTURE.npy, float32 [stimuli, layers, hidden], or [rows, layers, hidden] for a capture of several positions a
prompt; beside it NAME_CAPTURE_rows.csv, which says what each row is. NAME_attention_CAPTURE.npy and …_rows.csv likewise
for kept attention, [stimuli or rows, layers, heads, positions], 0 behind each query's own position. NAME_stimuli.csv
holds the stimuli, NAME_correctness.json which of them had the expected continuation, NAME_metadata.json where it all
came from.
csv: NAME_stimuli.csv, NAME_generations.csv, NAME_CAPTURE.csv with a row for each row and layer,
NAME_attention_CAPTURE.csv with one for each layer, query position and head, NAME_metadata.json.

The run is verified first. Whatever its size, one row group of one layer is in memory at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ember.errors import InputError
from pipelines import placing
from pipelines.canonical import canonical_json, plain
from pipelines.export_attention import PlannedAttention, plan_attention, write_attention_csv
from pipelines.export_files import (
    SCHEMA,
    new_folder,
    refuse_in_the_way,
    refuse_inside,
    sweep,
    write_array,
    write_table,
    write_vectors,
)
from pipelines.manifest import AttentionRecord, CaptureRecord
from pipelines.reading import Run, load

Format = Literal["npy", "csv"]
LAYOUTS: Final[dict[Format, str]] = {
    "npy": "an array for each capture, C order: [stimulus or row, layer, hidden]",
    "csv": "a table for each capture: layer after layer, a line for each stimulus or row",
}
CSV_BYTES: Final = 14
"""About what a number takes as text."""
ORIGINS: Final = ("model", "tokenizer", "numerics", "tensor_contract", "validation", "guard", "hooks", "generation",
                  "scoring", "stimuli")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    directory: Path
    files: tuple[str, ...]
    """Names in the directory, sorted."""
    shapes: dict[str, tuple[int, int, int]]
    """By capture: [stimuli or rows, layers, width]."""
    attention: dict[str, tuple[int, int, int, int]]
    """By kept attention: [stimuli or rows, layers, heads, positions]."""


def export_run(
    run_dir: str | Path,
    kind: Format,
    out: str | Path | None = None,
    *,
    captures: Sequence[str] = (),
    force: bool = False,
) -> Exported:
    """Write the run in `run_dir` to the folder `out`, by default RUN-npy or RUN-csv beside it.

    `captures` names what to write; by default all but logits, whose rows are as wide as the vocabulary. Prompts that
    failed are left out. The folder appears whole or not at all; `force` replaces an earlier export, nothing else.
    Raises InputError for a folder that is in the way and for captures that the run does not have, RunError for an
    unfinished run or a disk that cannot be written, VerifyError for a damaged run.
    """
    run = load(run_dir, verify=True, partial=True)
    target = (
        Path(out) if out is not None else run.directory.absolute().with_name(f"{run.directory.absolute().name}-{kind}")
    )
    refuse_inside(target, run.directory)
    sweep(target)
    refuse_in_the_way(target, force=force)
    chosen, kept = _choose(run, captures)
    rows = {one.name: _rows(run, one) for one in chosen}
    attention = [plan_attention(run.directory, run.manifest, one) for one in kept]
    vectors = [(len(rows[one.name]), len(one.layers), one.width) for one in chosen]
    needed = sum(map(math.prod, (*vectors, *(one.shape for one in attention)))) * (4 if kind == "npy" else CSV_BYTES)
    with new_folder(target, needed, force=force) as folder:
        writer = _Writer(run, folder, chosen, rows, attention)
        writer.write_npy() if kind == "npy" else writer.write_csv()
        writer.write_metadata(kind)
        files = tuple(sorted(path.name for path in folder.iterdir()))
    shapes = dict(zip([one.name for one in chosen], vectors, strict=True))
    return Exported(target, files, shapes, {one.record.name: one.shape for one in attention})


def _choose(run: Run, names: Sequence[str]) -> tuple[list[CaptureRecord], list[AttentionRecord]]:
    kept = run.manifest.origin.attention
    if not names:
        return [one for one in run.captures if one.table != "logits"], list(kept)
    known, weights = {one.name: one for one in run.captures}, {one.name: one for one in kept}
    if absent := [name for name in names if name not in known and name not in weights]:
        offered = ", ".join(map(repr, [*known, *weights])) or "none"
        raise InputError(f"this run has no capture {absent[0]!r}; it has {offered}")
    asked = tuple(dict.fromkeys(names))
    return [known[name] for name in asked if name in known], [weights[name] for name in asked if name in weights]


def _rows(run: Run, capture: CaptureRecord) -> Any:
    """What each row of a capture is, as an Arrow table: the same at each of its layers."""
    layer = capture.layers[0]
    return run.rows(site=capture.site, layer=None if layer < 0 else layer, capture=capture.name, step=None)


class _Writer:
    """Writes one run into a folder."""

    def __init__(
        self,
        run: Run,
        folder: Path,
        captures: list[CaptureRecord],
        rows: dict[str, Any],
        attention: list[PlannedAttention],
    ) -> None:
        self._run, self._folder, self._captures, self._keys = run, folder, captures, rows
        self._attention = attention
        self._stimuli = run.stimuli
        self._name = run.manifest.origin.name
        self._arrays: dict[str, dict[str, Any]] = {}
        self._attention_arrays: dict[str, dict[str, Any]] = {}

    def write_npy(self) -> None:
        """Arrays, the keys of their rows, and the correctness of each stimulus."""
        for capture in self._captures:
            self._write_array(capture)
        for kept in self._attention:
            self._write_attention(kept)
        write_table(self._path("stimuli.csv"), self._stimuli)
        told = correctness(self._run)
        if told is not None:
            self._path("correctness.json").write_text(canonical_json(told, indent=1) + "\n", encoding="utf-8")

    def write_csv(self) -> None:
        """Stimuli, continuations, and the vectors of each capture."""
        write_table(self._path("stimuli.csv"), self._stimuli)
        if self._run.generations.num_rows:
            write_table(self._path("generations.csv"), self._run.generations)
        for capture in self._captures:
            keys = self._keys[capture.name]
            chunks = ((layer, self._chunks(capture, layer)) for layer in capture.layers)
            write_vectors(self._path(f"{capture.name}.csv"), keys, chunks, capture.width)
        for kept in self._attention:
            write_attention_csv(self._path(f"attention_{kept.record.name}.csv"), kept)

    def _write_array(self, capture: CaptureRecord) -> None:
        path, keys = self._path(f"{capture.name}.npy"), self._keys[capture.name]
        shape = (len(keys), len(capture.layers), capture.width)
        write_array(path, shape, (self._chunks(capture, layer) for layer in capture.layers))
        write_table(self._path(f"{capture.name}_rows.csv"), keys.drop_columns(["site", "layer", "capture"]))
        axes = (self._first_axis(keys), "layer", "hidden" if capture.table == "activations" else "token")
        self._arrays[capture.name] = _array(path, shape, axes, capture.layers)

    def _write_attention(self, kept: PlannedAttention) -> None:
        name = f"attention_{kept.record.name}"
        path = self._path(f"{name}.npy")
        write_array(path, kept.shape, (kept.pieces(layer) for layer in kept.record.layers))
        write_table(self._path(f"{name}_rows.csv"), kept.keys)
        axes = (self._first_axis(kept.keys), "layer", "head", "attended position")
        self._attention_arrays[kept.record.name] = _array(path, kept.shape, axes, kept.record.layers)

    def _first_axis(self, keys: Any) -> str:
        return "stimulus" if keys["stimulus_id"].to_pylist() == self._stimuli["id"].to_pylist() else "row"

    def _chunks(self, capture: CaptureRecord, layer: int) -> Any:
        number = None if layer < 0 else layer
        return self._run.chunks(site=capture.site, layer=number, capture=capture.name, step=None)

    def write_metadata(self, kind: Format) -> None:
        """Write where everything came from, as the run's manifest says it, and the checksums of all other files."""
        manifest = self._run.manifest
        told = {
            "schema_version": SCHEMA,
            "layout": LAYOUTS[kind],
            "output_format": kind,
            "dtype": "float32",
            "files": {path.name: placing.sha256_file(path) for path in sorted(self._folder.iterdir())},
            "run": manifest.origin.name,
            "status": manifest.status,
            "semantic_hash": manifest.semantic_hash,
            "input_hash": manifest.input_hash,
            "inputs": plain(manifest.inputs),
            "captures": {one.name: plain(one) | {"array": self._arrays.get(one.name)} for one in self._captures},
            "attention": {
                one.record.name: plain(one.record) | {"array": self._attention_arrays.get(one.record.name)}
                for one in self._attention
            },
            "samples": manifest.samples,
            "failed_samples": list(manifest.failed_samples),
            **{name: plain(getattr(manifest.origin, name)) for name in ORIGINS},
        }
        self._path("metadata.json").write_text(canonical_json(told, indent=1) + "\n", encoding="utf-8")

    def _path(self, name: str) -> Path:
        path = self._folder / f"{self._name}_{name}"
        if path.exists():
            raise InputError(
                f"two files of this export would be called {path.name}, because of a capture's name; "
                "choose captures of other names, or the other format"
            )
        return path


def _array(path: Path, shape: tuple[int, ...], axes: tuple[str, ...], layers: tuple[int, ...]) -> dict[str, Any]:
    return {
        "file": path.name,
        "shape": list(shape),
        "dtype": "float32",
        "axes": list(axes),
        "layers": list(layers),
        "sha256": placing.sha256_file(path),
    }


def correctness(run: Run) -> dict[str, Any] | None:
    """Which stimuli had the expected continuation, in the order of the stimuli; None if nothing was expected.

    Only stimuli with an expected text and a continuation count. `by_label` counts right ones of each value.
    """
    answers = run.generations
    names = ("stimulus_id", "stopped", "has_expected", "expected", "text", "correct")
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(answers[n].to_pylist() for n in names), strict=True)]
    judged = {row["stimulus_id"]: row for row in rows if row["has_expected"] and row["stopped"]}
    if not judged:
        return None
    stimuli = run.stimuli
    labels = {n.removeprefix("label_"): stimuli[n].to_pylist() for n in stimuli.column_names if n.startswith("label_")}
    ids = stimuli["id"].to_pylist()
    by_label = {
        label: _shares(
            [(value, judged[name]["correct"]) for name, value in zip(ids, values, strict=True) if name in judged]
        )
        for label, values in labels.items()
    }
    by_label = {label: shares for label, shares in by_label.items() if shares}
    entries = [_entry(index, name, judged.get(name)) for index, name in enumerate(ids)]
    right = sum(row["correct"] for row in judged.values())
    return {"correct": right, "judged": len(judged), "by_label": by_label, "stimuli": entries}


def _entry(index: int, name: str, row: dict[str, Any] | None) -> dict[str, Any]:
    if row is None:
        return {"index": index, "id": name, "correct": None}
    return {"index": index, "id": name, "correct": row["correct"], "expected": row["expected"], "produced": row["text"]}


def _shares(pairs: list[tuple[str | None, bool]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for value, correct in pairs:
        if value is not None:
            told = found.setdefault(value, {"correct": 0, "judged": 0})
            told["correct"] += correct
            told["judged"] += 1
    return found
