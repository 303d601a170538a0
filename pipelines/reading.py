"""Reading a finished run: matrices for analysis, tables for everything else.

    run = pipelines.load("outputs/roots")
    X = run.matrix(site="after_layer", layer=7)          # [stimuli, hidden] float32, in the order of run.stimuli
    y = run.stimuli["label_root"].to_pylist()
    run.to_pandas()                                      # stimuli, labels, continuations; also to_polars(), duckdb()

Needs no model and no engine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from ember.sites import NO_LAYER, SITES
from pipelines import frames, tables
from pipelines.columns import numbers
from pipelines.errors import RunError
from pipelines.findings import Finding, read_findings
from pipelines.journal import how_to_go_on
from pipelines.manifest import MANIFEST, CaptureRecord, Manifest, read_manifest
from pipelines.parts import ATTENTION, EXPERIMENTS, STIMULI, confined
from pipelines.rows import LABEL_PREFIX
from pipelines.verify import verify as verify_run


@dataclass(frozen=True, slots=True)
class _Pick:
    """Rows of one row group that belong to an answer."""

    path: Path
    group: int
    keep: NDArray[np.bool_] | None
    """Which of its rows; None: all."""
    rows: int


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run on disk; nothing is read before it is asked for."""

    directory: Path
    manifest: Manifest

    def __repr__(self) -> str:
        told, failed = self.manifest, len(self.manifest.failed_samples)
        lost = f" ({failed:,} failed)" if failed else ""
        captures = ", ".join(capture.name for capture in self.captures) or "none"
        model = told.origin.model.get("name") or "without a name"
        return f"<pipelines.Run {self.directory}: {told.samples:,} stimuli{lost}; captures {captures}; model {model}>"

    @property
    def captures(self) -> tuple[CaptureRecord, ...]:
        """What was captured, in the order of the config."""
        return self.manifest.origin.captures

    @property
    def stimuli(self) -> tables.Table:
        """Stimuli as an Arrow table in sample order; those that failed, and so have no rows, are left out."""
        table = self._table(STIMULI, tables.stimuli_schema(()))
        if not self.manifest.failed_samples:
            return table
        kept = ~np.isin(tables.column(table, "sample_index"), self.manifest.failed_samples)
        return table.filter(numbers(kept))

    @property
    def generations(self) -> tables.Table:
        """Continuations and scores as an Arrow table in sample order, without rows if there are neither."""
        return self._table("generations", tables.generations_schema())

    def attention(self, *, layer: int, capture: str | None = None) -> tables.Table:
        """Attention weights of one layer as an Arrow table: a row for each query position and head.

        Raises InputError, listing what there is.
        """
        kept = self.manifest.origin.attention
        found = [one for one in kept if capture in (None, one.name) and layer in one.layers]
        if len(found) != 1:
            offer = "; ".join(f"{one.name!r}: {_layers(one.layers)}, {one.position}" for one in kept) or "none"
            raise InputError(f"{len(found) or 'no'} kept attention fits layer {layer} and capture {capture!r}: {offer}")
        table = self._table(ATTENTION, tables.attention_schema())
        of_layer = tables.column(table, "layer") == layer
        chosen = table.filter(numbers(of_layer))
        return chosen.take(numbers(np.flatnonzero([name == found[0].name for name in chosen["capture"].to_pylist()])))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What experiments found, in sample order; nothing where none ran."""
        paths = [confined(self.directory, part) for part in self.manifest.parts_of(EXPERIMENTS)]
        return tuple(finding for path in paths for finding in _findings(path))

    def sites(self) -> tuple[str, ...]:
        """Sites that were captured, in firing order."""
        found = {capture.site for capture in self.captures}
        return tuple(site for site in SITES if site in found)

    def layers(self, site: str, capture: str | None = None) -> tuple[int, ...]:
        """Layers captured at `site`, in ascending order."""
        return tuple(sorted({layer for found in self._named(site, capture) for layer in found.layers}))

    def matrix(
        self, *, site: str, layer: int | None = None, capture: str | None = None, step: int | None = None
    ) -> NDArray[np.float32]:
        """Return one site and layer as float32 [rows, width], C-contiguous, in the order of samples.

        A capture of one position per prompt gives [stimuli, hidden], aligned with `stimuli`. One of several positions
        gives a row for each; `rows` says which. Negative layers count from the last; the logits sites need none.
        `capture` is needed only where several captures have the site and layer. `step` chooses one generated step of a
        capture that has them.
        Raises InputError, listing what there is.
        """
        chosen, number = self._select(site, layer, capture)
        picks = list(self._picks(chosen, number, step))
        if step is not None and not any(pick.rows for pick in picks):
            raise InputError(f"capture {chosen.name!r} has no rows of step {step!r}; leave `step` out for all rows")
        out = np.empty((sum(pick.rows for pick in picks), chosen.width), np.float32)
        row = 0
        for pick in picks:
            with _undamaged(pick.path), tables.open_part(pick.path) as part:
                found = tables.read_group(part, pick.group, [tables.VALUES])
                tables.fill(out[row : row + pick.rows], found, pick.keep)
            row += pick.rows
        return out

    def chunks(
        self, *, site: str, layer: int | None = None, capture: str | None = None, step: int | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """Give the rows of `matrix` of the same arguments piece by piece, a row group [rows, width] at a time."""
        chosen, number = self._select(site, layer, capture)
        for pick in self._picks(chosen, number, step):
            out = np.empty((pick.rows, chosen.width), np.float32)
            with _undamaged(pick.path), tables.open_part(pick.path) as part:
                tables.fill(out, tables.read_group(part, pick.group, [tables.VALUES]), pick.keep)
            yield out

    def rows(
        self, *, site: str, layer: int | None = None, capture: str | None = None, step: int | None = None
    ) -> tables.Table:
        """Return the columns beside the vectors as an Arrow table, row for row with `matrix` of the same arguments."""
        chosen, number = self._select(site, layer, capture)
        return tables.joined([_rows(pick) for pick in self._picks(chosen, number, step)], tables.index_schema())

    def table(
        self, *, site: str | None = None, layer: int | None = None, capture: str | None = None, step: int | None = None
    ) -> tables.Table:
        """Return one Arrow table of what belongs together.

        Without `site`: the stimuli, a row each, beside their continuations and scores, if there are any (new tokens are
        called `new_token_ids`). With `site`, `layer` and the rest as in `matrix`: its rows, the labels, template and
        text of each row's stimulus, and the vector as `activation`.
        """
        stimuli = self.stimuli
        if site is None:
            answers = self.generations
            names = [{"token_ids": "new_token_ids"}.get(name, name) for name in answers.column_names]
            return tables.beside(stimuli, answers.rename_columns(names)) if answers.num_rows else stimuli
        rows = self.rows(site=site, layer=layer, capture=capture, step=step)
        known = tables.column(stimuli, "sample_index")
        which = np.searchsorted(known, tables.column(rows, "sample_index")).astype(np.int64)
        told = [n for n in stimuli.column_names if n.startswith(LABEL_PREFIX) or n in ("template", "prompt")]
        values = self.matrix(site=site, layer=layer, capture=capture, step=step)
        return tables.beside(rows, stimuli.select(told), which).append_column(tables.VALUES, tables.vectors(values))

    def to_pandas(self, **chosen: Any) -> Any:
        """Return `table` of the same arguments as a pandas DataFrame."""
        return frames.pandas_frame(self.table(**chosen))

    def to_polars(self, **chosen: Any) -> Any:
        """Return `table` of the same arguments as a polars DataFrame."""
        return frames.polars_frame(self.table(**chosen))

    def duckdb(self) -> Any:
        """Return a DuckDB connection with a view for each table of the run, read from its files as queries need."""
        return frames.database(self.directory, self.manifest)

    def _table(self, name: str, schema: Any) -> tables.Table:
        paths = [confined(self.directory, part) for part in self.manifest.parts_of(name)]
        return tables.joined([group for path in paths for group in _groups(path)], schema)

    def _named(self, site: str, capture: str | None) -> list[CaptureRecord]:
        found = [c for c in self.captures if c.site == site and capture in (None, c.name)]
        if not found:
            wanted = f"site {site!r}" + (f", capture {capture!r}" if capture is not None else "")
            raise InputError(f"this run has no {wanted}; it has {self._offer()}")
        return found

    def _select(self, site: str, layer: int | None, capture: str | None) -> tuple[CaptureRecord, int]:
        named = self._named(site, capture)
        number = self._layer(site, layer)
        found = [c for c in named if number in c.layers]
        if not found:
            raise InputError(f"layer {layer} of {site} was not captured; this run has {self._offer()}")
        if len(found) > 1:
            names = ", ".join(repr(c.name) for c in found)
            raise InputError(f"{len(found)} captures have layer {layer} of {site}: choose one of capture={names}")
        return found[0], number

    def _layer(self, site: str, layer: int | None) -> int:
        if not SITES[site].per_layer:
            if layer not in (None, NO_LAYER):
                raise InputError(f"site {site} has no layers; leave `layer` out")
            return NO_LAYER
        if layer is None:
            raise InputError(f"site {site} needs `layer`; this run has {self._offer()}")
        return layer + int(self.manifest.origin.model.get("n_layers", 0)) if layer < 0 else layer

    def _picks(self, capture: CaptureRecord, layer: int, step: int | None) -> Iterator[_Pick]:
        begin = 0
        for record in self.manifest.parts_of(capture.table):
            path = confined(self.directory, record)
            with _undamaged(path), tables.open_part(path) as part:
                if (width := tables.width_of(part)) != capture.width:
                    raise ValueError(f"its rows have {width} numbers, the manifest says {capture.width}")
                found = tables.find_groups(part, (capture.name, capture.site, layer), begin)
                begin = found[0].index if found else begin
                picks = [_pick(path, part, group, step) for group in found]
            yield from picks

    def _offer(self) -> str:
        return "; ".join(f"{c.name!r}: {c.site}, {_layers(c.layers)}, {c.position}" for c in self.captures) or "nothing"


def load(run_dir: str | Path, *, verify: bool = False, partial: bool = False) -> Run:
    """Open the run in `run_dir`.

    `verify` checks every file first. A run in which some prompts failed needs `partial`: it then holds only the others.
    Raises InputError if there is no such directory, RunError for a run that is unfinished or partial, VerifyError for a
    damaged one.
    """
    directory = Path(run_dir)
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory; give the output.dir of a finished run")
    if not (directory / MANIFEST).exists():
        raise RunError(f"{directory} holds no finished run: there is no {MANIFEST}. {how_to_go_on(directory)}")
    if verify:
        verify_run(directory)
    manifest = read_manifest(directory)
    if manifest.failed_samples and not partial:
        raise RunError(
            f"{len(manifest.failed_samples)} of {manifest.samples} prompts of {directory} failed (see failures.jsonl). "
            "Run it again to retry them, or read the others with load(..., partial=True)"
        )
    return Run(directory, manifest)


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except tables.DAMAGE as error:
        raise RunError(
            f"{path} cannot be read as a part of this run ({error}); `ember pipeline verify` lists all that is wrong"
        ) from error


def _groups(path: Path) -> list[tables.Table]:
    with _undamaged(path):
        return list(tables.read_groups(path))


def _findings(path: Path) -> list[Finding]:
    with _undamaged(path):
        return list(read_findings(path))


def _rows(pick: _Pick) -> tables.Table:
    with _undamaged(pick.path), tables.open_part(pick.path) as part:
        table = tables.read_group(part, pick.group, tables.INDEX_COLUMNS).replace_schema_metadata(None)
        return table if pick.keep is None else table.filter(numbers(pick.keep))


def _pick(path: Path, part: Any, group: tables.Group, step: int | None) -> _Pick:
    if step is None or group.only_step == step:
        return _Pick(path, group.index, None, group.rows)
    keep = tables.column(tables.read_group(part, group.index, ["step"]), "step") == step
    return _Pick(path, group.index, keep, int(keep.sum()))


def _layers(layers: tuple[int, ...]) -> str:
    if layers == (NO_LAYER,):
        return "no layer"
    if len(layers) > 2 and layers == tuple(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
