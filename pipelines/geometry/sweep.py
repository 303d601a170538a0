"""All measures of a run, written to its folder `geometry`."""

import io
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from ember import __version__
from pipelines import placing, tables
from pipelines.errors import IdentityError
from pipelines.geometry.measures import LayerMap, Measure, capture_geometry, run_fertility
from pipelines.manifest import CaptureRecord
from pipelines.reading import Run, load
from pipelines.state import STATE_DIR

FOLDER: Final = "geometry"
TABLE: Final = "geometry.parquet"
MAPS: Final = "maps.parquet"
MANIFEST: Final = "manifest.json"
SCHEMA_VERSION: Final = "ember.geometry/v1"


@dataclass(frozen=True, slots=True)
class Geometry:
    """What was measured."""

    directory: Path
    measures: tuple[Measure, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Kinds of measures, in their order."""
        return tuple(dict.fromkeys(one.measure for one in self.measures))


def measure(run_dir: str | Path, *, out: str | Path | None = None, seed: int = 0, partial: bool = False) -> Geometry:
    """Measure a finished run and write geometry.parquet, maps.parquet and manifest.json.

    The run is verified first. Captures with several rows for a stimulus, and logits, are left out. `partial` allows
    runs in which some prompts failed. Raises what `pipelines.load` raises, and IdentityError where `out` holds other
    files.
    """
    run = load(run_dir, verify=True, partial=partial)
    folder = Path(out) if out is not None else run.directory / FOLDER
    _refuse_foreign(folder)
    measures, maps = run_fertility(run), []
    with threadpool_limits(1):
        for capture in (one for one in run.captures if _one_row_each(run, one)):
            found, drawn = capture_geometry(run, capture, seed)
            measures += found
            maps += drawn
    _write(folder, run, measures, maps, seed)
    return Geometry(folder, tuple(measures))


def _one_row_each(run: Run, capture: CaptureRecord) -> bool:
    if capture.site == "after_logits":
        return False
    rows = run.rows(site=capture.site, layer=capture.layers[0], capture=capture.name)
    samples = tables.column(rows, "sample_index")
    return len(samples) >= 4 and len(np.unique(samples)) == len(samples)


def _refuse_foreign(folder: Path) -> None:
    own = (TABLE, MAPS, MANIFEST, STATE_DIR)
    if folder.exists() and not folder.is_dir():
        raise IdentityError(f"{folder} is a file; choose another folder")
    if foreign := sorted(path.name for path in folder.iterdir() if path.name not in own) if folder.is_dir() else []:
        raise IdentityError(f"{folder} holds what no measure of geometry writes ({foreign[0]}); choose another folder")


def _write(folder: Path, run: Run, measures: list[Measure], maps: list[LayerMap], seed: int) -> None:
    semantic = run.manifest.semantic_hash
    footer = {"ember.semantic_hash": semantic, "ember.version": __version__}
    files = {TABLE: _measures_parquet(measures, footer), MAPS: _maps_parquet(maps, footer)}
    records = []
    for name, data in files.items():
        placing.write_over(folder, name, data, "geometry")
        records.append({"path": name, "bytes": len(data), "sha256": placing.sha256_file(folder / name)})
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "run": {"name": run.manifest.origin.name, "semantic_hash": semantic},
        "seed": seed,
        "versions": {"ember": __version__, "numpy": np.__version__},
        "files": records,
    }
    text = json.dumps(manifest, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    placing.write_over(folder, MANIFEST, text.encode(), "geometry")


def geometry_schema() -> Any:
    """Return the schema of geometry.parquet."""
    kinds = {"layer": pa.int16(), "other_layer": pa.int16(), "stimuli": pa.int32()}
    texts = ("measure", "capture", "site", "other")
    return pa.schema(
        [
            pa.field(one.name, kinds.get(one.name, pa.string() if one.name in texts else pa.float64()), nullable=False)
            for one in fields(Measure)
        ]
    )


def maps_schema() -> Any:
    """Return the schema of maps.parquet."""
    texts = [pa.field(name, pa.string(), nullable=False) for name in ("capture", "site")]
    numbers = [pa.field("layer", pa.int16(), nullable=False), pa.field("sample_index", pa.int32(), nullable=False)]
    places = [pa.field(name, pa.float64(), nullable=False) for name in ("x", "y", "explained_x", "explained_y")]
    return pa.schema([*texts, *numbers, *places])


def _measures_parquet(measures: list[Measure], footer: dict[str, str]) -> bytes:
    names = [one.name for one in fields(Measure)]
    rows = [{name: getattr(one, name) for name in names} for one in measures]
    return _bytes(pa.Table.from_pylist(rows, schema=geometry_schema().with_metadata(footer)))


def _maps_parquet(maps: list[LayerMap], footer: dict[str, str]) -> bytes:
    rows = []
    for one in maps:
        # a single component lies on a line
        points = np.pad(one.map.points, ((0, 0), (0, 2 - one.map.points.shape[1])))
        explained = np.pad(one.map.explained, (0, 2 - len(one.map.explained))).tolist()
        place = {"capture": one.capture, "site": one.site, "layer": one.layer}
        shares = {"explained_x": explained[0], "explained_y": explained[1]}
        pairs = zip(one.samples.tolist(), points.tolist(), strict=True)
        rows += [place | {"sample_index": sample, "x": x, "y": y} | shares for sample, (x, y) in pairs]
    return _bytes(pa.Table.from_pylist(rows, schema=maps_schema().with_metadata(footer)))


def _bytes(table: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()
