"""Where an intervention takes its rows from: vector files, and rows of finished runs.

The client checks both before a run starts: a file's shape and values, a run's every byte. Rows of runs travel to
workers as directory, part and row, and are read where they are used.
"""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from ember.positions import Position, resolve
from ember.work import Floats
from pipelines import placing, tables
from pipelines.crosscheck import step_of
from pipelines.errors import ConfigError, RunError, VerifyError
from pipelines.hook_tables import RunReference
from pipelines.manifest import CaptureRecord, Manifest
from pipelines.parts import STIMULI_PATH, confined
from pipelines.verify import verify

POOLED: Final = -1
"""Position of a row that is a mean."""
_SHIFT: Final = 32

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector file."""

    sha256: str
    values: Floats
    """[width], or [layers, width]."""


def load_vector(path: Path) -> Vector:
    """Read a .npy file of finite float32 or float64 numbers, [width] or [layers, width].

    Raises ConfigError for anything else; values that do not fit float32 are not finite there.
    """
    try:
        raw = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; give the path of a .npy file") from None
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise ConfigError(f"{path} is no .npy file of numbers ({error}); write it with numpy.save") from error
    if not isinstance(raw, np.ndarray) or raw.dtype.kind != "f" or raw.dtype.itemsize not in (4, 8):
        kind = raw.dtype if isinstance(raw, np.ndarray) else "several arrays"
        raise ConfigError(f"{path}: found {kind}, expected one array of float32 or float64")
    if raw.ndim not in (1, 2) or 0 in raw.shape:
        raise ConfigError(f"{path}: found shape {list(raw.shape)}, expected [width] or [layers, width]")
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(raw, np.float32)
    wrong = int((~np.isfinite(values)).sum())
    if wrong:
        raise ConfigError(f"{path}: {wrong} of {values.size} numbers are not finite as float32; expected none")
    return Vector(hashlib.sha256(path.read_bytes()).hexdigest(), values)


@dataclass(frozen=True, slots=True)
class SourceRun:
    """A finished run, verified."""

    directory: Path
    manifest: Manifest
    samples: dict[str, int]
    """Stimuli that have rows, by id."""
    lengths: Ints
    """[samples] tokens of each prompt."""
    spans: Ints
    """[samples, 2] half-open range of tokens of each target; -1 without one."""
    _indices: dict[str, "_Index"] = field(default_factory=dict)

    def capture(self, name: str | None, site: str) -> CaptureRecord:
        """Return a capture of prompts by name, or the only one at `site`. Raises InputError, listing what there is."""
        captures = [c for c in self.manifest.origin.captures if step_of(c.position) is None]
        found = [c for c in captures if c.name == name] if name else [c for c in captures if c.site == site]
        if len(found) == 1:
            return found[0]
        offered = ", ".join(f"{c.name!r} ({c.site}, {c.position})" for c in captures) or "none"
        wanted = f"capture {name!r}" if name else f"{'one' if not found else 'single'} capture at {site}"
        raise InputError(f"{self.directory} has no {wanted}; its captures of prompts: {offered}")

    @property
    def n_layers(self) -> int:
        """Layers of its model. Raises InputError where the manifest does not say, which no file contradicts."""
        found = self.manifest.origin.model.get("n_layers")
        if not isinstance(found, int) or isinstance(found, bool):
            raise InputError(f"the manifest of {self.directory} does not say how many layers its model has")
        return found

    def reference(self, capture: CaptureRecord) -> RunReference:
        """Return what workers need to read rows of `capture`."""
        parts = tuple((part.path, part.sha256) for part in self.manifest.parts_of(capture.table))
        return RunReference(
            str(self.directory.absolute()),
            self.manifest.semantic_hash,
            self.manifest.input_hash,
            self.manifest.inputs.model_sha256,
            capture.name,
            capture.site,
            parts,
        )

    def places(
        self, capture: CaptureRecord, stimulus: str, wanted: Position | None, acted: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Part and row of `capture` for each position in `acted`.

        The rows are those of `stimulus` at the same positions, or at the positions `wanted` of its own prompt. Raises
        InputError naming what is absent.
        """
        sample = self.samples.get(stimulus)
        if sample is None:
            raise InputError(f"{self.directory} has no rows of a stimulus {stimulus!r}")
        index = self._index(capture)
        at = _positions(index, sample, wanted, acted, int(self.lengths[sample]), self._span(sample))
        found = [index.find(sample, position) for position in at]
        absent = [position for position, row in zip(at, found, strict=True) if row is None]
        if absent:
            raise InputError(f"capture {capture.name!r} of {self.directory} has no row of position {absent[0]}")
        rows = [row for row in found if row is not None]
        return tuple(part for part, _ in rows), tuple(row for _, row in rows)

    def _span(self, sample: int) -> tuple[int, int] | None:
        first, end = self.spans[sample].tolist()
        return (first, end) if first >= 0 else None

    def _index(self, capture: CaptureRecord) -> "_Index":
        if capture.name not in self._indices:
            self._indices[capture.name] = _read_index(self.directory, self.manifest, capture)
        return self._indices[capture.name]


@dataclass(frozen=True, slots=True)
class _Index:
    """Rows of a capture at prompt positions: in which part, and which of the part's rows of that capture and layer."""

    keys: Ints
    """[rows] sample and position, ascending."""
    parts: Ints
    rows: Ints

    def find(self, sample: int, position: int) -> tuple[int, int] | None:
        """Part and row of a position, or None."""
        key = _key(sample, position)
        at = int(np.searchsorted(self.keys, key))
        found = at < len(self.keys) and self.keys[at] == key
        return (int(self.parts[at]), int(self.rows[at])) if found else None


def _key(sample: Any, position: Any) -> Any:
    return (sample << _SHIFT) + position + 1


def _positions(
    index: _Index,
    sample: int,
    wanted: Position | None,
    acted: Sequence[int],
    length: int,
    span: tuple[int, int] | None,
) -> list[int]:
    """Positions of the source's prompt whose rows serve `acted`, one for each."""
    if index.find(sample, POOLED) is not None:
        return [POOLED] * len(acted)
    if wanted is None:
        return list(acted)
    at = resolve(wanted, length, span)
    if len(at) not in (1, len(acted)):
        raise InputError(f"the source has {len(at)} positions for {len(acted)} acted on; expected one, or as many")
    return list(at) if len(at) == len(acted) else [at[0]] * len(acted)


def open_run(directory: Path) -> SourceRun:
    """Verify a finished run and open it as a source.

    Raises ConfigError where there is none, VerifyError listing what is wrong with one.
    """
    if not directory.is_dir():
        raise ConfigError(f"{directory} is no directory; give the output.dir of a finished run")
    try:
        verdict = verify(directory)
    except VerifyError as error:
        raise VerifyError(f"as a source of rows, {error}") from error
    manifest = verdict.manifest
    assert manifest is not None, "a sound run has a manifest"
    if manifest.origin.dtype != "float32":
        raise ConfigError(f"{directory} stores {manifest.origin.dtype}; rows of a source must be float32")
    stimuli = tables.joined(list(tables.read_groups(directory / STIMULI_PATH)), tables.stimuli_schema(()))
    ids, failed = stimuli["id"].to_pylist(), set(manifest.failed_samples)
    columns = [tables.column(stimuli, name).astype(np.int64) for name in ("n_tokens", "span_first", "span_end")]
    samples = {name: sample for sample, name in enumerate(ids) if sample not in failed}
    return SourceRun(directory, manifest, samples, columns[0], np.stack(columns[1:], axis=1))


def _read_index(directory: Path, manifest: Manifest, capture: CaptureRecord) -> _Index:
    key = (capture.name, capture.site, capture.layers[0])
    keys, parts, rows = [], [], []
    for number, part in enumerate(manifest.parts_of(capture.table)):
        with tables.open_part(confined(directory, part)) as opened:
            row = 0
            for group in tables.find_groups(opened, key):
                table = tables.read_group(opened, group.index, ["sample_index", "step", "position"])
                sample, step, position = (tables.column(table, n) for n in ("sample_index", "step", "position"))
                of_prompt = np.flatnonzero(step == -1)
                keys.append(_key(sample[of_prompt].astype(np.int64), position[of_prompt].astype(np.int64)))
                parts.append(np.full(len(of_prompt), number, np.int64))
                rows.append(row + of_prompt)
                row += group.rows
    none = [np.empty(0, np.int64)]
    return _Index(*(np.concatenate(none + found) for found in (keys, parts, rows)))


def read_rows(source: RunReference, layers: Sequence[int], parts: Sequence[int], rows: Sequence[int]) -> Floats:
    """Read rows of a source, [layers, rows, width]: row `rows[i]` of part `parts[i]` at each layer.

    Raises RunError where a part is not the one that was verified.
    """
    which, chosen = np.asarray(parts, np.int64), np.asarray(rows, np.int64)
    out: Floats | None = None
    for number in np.unique(which).tolist():
        path, sha256 = Path(source.directory) / source.parts[number][0], source.parts[number][1]
        _check_part(path, sha256)
        here = np.flatnonzero(which == number)
        with tables.open_part(path) as part:
            if out is None:
                out = np.empty((len(layers), len(chosen), tables.width_of(part)), np.float32)
            for slot, layer in enumerate(layers):
                out[slot, here] = _rows_of_layer(part, (source.capture, source.site, layer), chosen[here])
    assert out is not None, "there is a row to read"
    return out


def _rows_of_layer(part: Any, key: tuple[str, str, int], rows: Ints) -> Floats:
    wanted, back = np.unique(rows, return_inverse=True)
    out = np.empty((len(wanted), tables.width_of(part)), np.float32)
    start = 0
    for group in tables.find_groups(part, key):
        here = (wanted >= start) & (wanted < start + group.rows)
        if here.any():
            keep = np.zeros(group.rows, np.bool_)
            keep[wanted[here] - start] = True
            first = int(np.flatnonzero(here)[0])
            table = tables.read_group(part, group.index, [tables.VALUES])
            tables.fill(out[first : first + int(here.sum())], table, keep)
        start += group.rows
    return out[back]


def _check_part(path: Path, sha256: str) -> None:
    try:
        found = path.stat()
        same = _sha256(path, found.st_size, found.st_mtime_ns) == sha256
    except OSError as error:
        raise RunError(f"{path}, a source of rows, cannot be read: {error}; put it back and run again") from error
    if not same:
        raise RunError(f"{path}, a source of rows, has changed since the run began; put it back and run again")


@functools.lru_cache(maxsize=4096)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    """Hash a file once for each state that it is seen in."""
    return placing.sha256_file(path)
