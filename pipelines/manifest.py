"""The manifest: what a finished run is, where every tensor came from, and which files hold it.

Written last; a directory without one is an unfinished run. It holds no time, host or path, so that the same config and
model give the same manifest. The hashes are pure functions of records:

    input_hash     config, plan, hooks, stimuli, their order, model, tokenizer, numerics version
    semantic_hash  input_hash, the content hashes of all parts, the samples that failed
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from ember.sites import NO_LAYER, SITES
from pipelines import placing
from pipelines.canonical import canonical_json, plain, sha256_of
from pipelines.errors import VerifyError
from pipelines.journal import how_to_go_on
from pipelines.parts import LAYOUT, PartFile
from pipelines.rows import stimulus_record
from pipelines.stimuli.record import Stimulus

SCHEMA_VERSION: Final = "ember.manifest/v1"
MANIFEST: Final = "manifest.json"

Record = dict[str, Any]
Site = Annotated[str, Field(pattern=f"^({'|'.join(SITES)})$")]
Layer = Annotated[int, Field(ge=NO_LAYER, le=2**15 - 1)]
Width = Annotated[int, Field(ge=1, le=2**31 - 1)]
Dtype = Annotated[str, Field(pattern="^(float32|float16)$")]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that decides the values of a run."""

    config_sha256: str
    """Of the resolved config without what decides only time and place."""
    plan_sha256: str
    """Of units, token ids and resolved positions."""
    stimuli_sha256: str
    sample_order_sha256: str
    model_sha256: str
    tokenizer_sha256: str
    numerics_version: int
    hooks_sha256: str = ""
    """Of the hook plan: what is taken and changed, where in every prompt, with which contents and by which code."""

    @property
    def input_hash(self) -> str:
        """The hash that stands for all of them."""
        return sha256_of(self)


@dataclass(frozen=True, slots=True)
class CaptureRecord:
    """One capture of a run."""

    name: str
    site: Site
    layers: tuple[Layer, ...]
    """(-1,) for the logits sites."""
    position: str
    """The selector, as text."""
    width: Width
    """Numbers in a row."""
    observe: Literal["before", "after"] = "after"
    """Whether rows were taken before or after what acted at the capture's own site."""
    where: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Labels and their values that select stimuli; empty: all."""

    @property
    def table(self) -> str:
        """The table that holds its rows."""
        return "logits" if self.site == "after_logits" else "activations"


@dataclass(frozen=True, slots=True)
class AttentionRecord:
    """Attention weights that a run keeps."""

    name: str
    layers: tuple[Layer, ...]
    position: str
    """The selector, as text."""
    where: dict[str, tuple[str, ...]]
    """Labels and their values that select stimuli; empty: all."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the tensors came from."""

    name: str
    dtype: Dtype
    """As stored: float32 or float16."""
    captures: tuple[CaptureRecord, ...]
    tensor_contract: Record
    """Per site and layer: side of the residual, norm that fed it, source tensors; per phase the kernel."""
    model: Record
    """Architecture, n_layers, hidden_size, hyper-parameters, counts of quant types."""
    tokenizer: Record
    numerics: Record
    """Route, mode, BLAS and its kernel, threads, CPU features, library versions, contract 1 or 2."""
    validation: Record
    """What has been shown for this family, its types and route: `rung`, `by_type`, `models` (docs/validation.md)."""
    guard: Record | None
    """What the smoke guard measured; None when it was off."""
    attention: tuple[AttentionRecord, ...] = ()
    hooks: Record | None = None
    """Interventions and experiments that acted, with the hashes of their sources; None where nothing did."""
    generation: Record | None = None
    """How new tokens were chosen, what ended them, how texts are compared; None where nothing was generated."""
    scoring: Record | None = None
    """What was scored and by which rule; None where nothing was."""
    stimuli: Record | None = None
    """Where the stimuli came from: source, steps of selection with counts, normalisers; None in older runs."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A run's manifest; in JSON the fields of `inputs` and `origin` stand beside the others."""

    inputs: Inputs
    origin: Origin
    samples: int
    failed_samples: tuple[int, ...]
    """Samples without rows, in ascending order; `failures.jsonl` says why."""
    splits: tuple[str, ...]
    """Units, or halves of units, that were split because they killed their worker."""
    parts: tuple[PartFile, ...]
    input_hash: str
    semantic_hash: str
    status: Literal["complete", "partial"]
    schema_version: Annotated[str, Field(pattern=f"^{SCHEMA_VERSION}$")]
    layout: Annotated[str, Field(pattern=f"^{LAYOUT}$")]
    output_format: Literal["parquet"]

    def parts_of(self, table: str) -> tuple[PartFile, ...]:
        """Parts of one table, in sample order."""
        return tuple(part for part in self.parts if part.table == table)


def stimuli_sha256(stimuli: Iterable[Stimulus]) -> str:
    """Hash of all stimuli in the user's order, whatever order they are given in."""
    ordered = sorted(stimuli, key=lambda stimulus: stimulus.source_index)
    return records_sha256(stimulus_record(stimulus) for stimulus in ordered)


def records_sha256(records: Iterable[Mapping[str, Any]]) -> str:
    """As `stimuli_sha256`, for the stimuli's records (`pipelines.rows.stimulus_record`) in the user's order."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(record_line(record))
    return digest.hexdigest()


def record_line(record: Mapping[str, Any]) -> bytes:
    """Return what the hash of all stimuli takes from the record of one."""
    return canonical_json(record).encode() + b"\n"


def sample_order_sha256(source_indices: Sequence[int]) -> str:
    """Hash of the plan order, given the source index of each sample."""
    return sha256_of(list(source_indices))


def semantic_hash(input_hash: str, parts: Iterable[PartFile], failed_samples: Iterable[int]) -> str:
    """Hash of what the run says: equal for equal values, whatever the version of pyarrow."""
    told = sorted([part.path, part.rows, part.content_sha256] for part in parts)
    return sha256_of({"input_hash": input_hash, "parts": told, "failed_samples": sorted(failed_samples)})


def build_manifest(
    inputs: Inputs,
    origin: Origin,
    *,
    samples: int,
    parts: Iterable[PartFile],
    failed_samples: Iterable[int] = (),
    splits: Iterable[str] = (),
) -> Manifest:
    """Manifest of a finished run of `samples` samples; `parts` include the stimuli."""
    ordered = tuple(sorted(parts, key=lambda part: (part.table, part.sample_start, part.path)))
    failed = tuple(sorted(failed_samples))
    return Manifest(
        inputs,
        origin,
        samples,
        failed,
        tuple(sorted(splits)),
        ordered,
        inputs.input_hash,
        semantic_hash(inputs.input_hash, ordered, failed),
        "partial" if failed else "complete",
        SCHEMA_VERSION,
        LAYOUT,
        "parquet",
    )


def manifest_json(manifest: Manifest) -> str:
    """Text of `manifest.json`: sorted keys, indented by 1."""
    record = plain(manifest)
    inputs, origin = record.pop("inputs"), record.pop("origin")
    return canonical_json(record | inputs | origin, indent=1) + "\n"


def write_manifest(run_dir: Path, manifest: Manifest) -> None:
    """Put `manifest.json` in place at once, over an older one; raises RunError for a disk that cannot be written."""
    placing.write_over(run_dir, MANIFEST, manifest_json(manifest).encode(), "manifest")


def read_manifest(run_dir: Path) -> Manifest:
    """Read `manifest.json`; raises VerifyError naming every field that is not as this version of Ember writes it."""
    path = run_dir / MANIFEST
    if path.is_symlink() or not path.is_file():
        raise VerifyError(
            f"{path} is {'not a plain file' if path.exists() else 'absent'}: a finished run has one. "
            + how_to_go_on(run_dir)
        )
    try:
        found = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise VerifyError(f"{path} is not JSON ({error}); it was damaged, or edited by hand") from error
    version = found.get("schema_version") if isinstance(found, dict) else None
    if version != SCHEMA_VERSION:
        raise VerifyError(
            f"{path}: schema_version is {version!r}, expected {SCHEMA_VERSION!r}; "
            "read it with the version of Ember that wrote it"
        )
    return _parse(path, found)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _parse(path: Path, found: Record) -> Manifest:
    nested = dict(found)
    for section, kind in (("inputs", Inputs), ("origin", Origin)):
        names = [field.name for field in dataclasses.fields(kind)]
        nested[section] = {name: nested.pop(name) for name in names if name in nested}
    try:
        manifest = TypeAdapter(Manifest).validate_json(json.dumps(nested), strict=True)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)]
        raise VerifyError(f"{path} is not a manifest of this version: {'; '.join(problems)}") from error
    if unknown := found.keys() - json.loads(manifest_json(manifest)).keys():
        raise VerifyError(f"{path} has fields that this version does not know: {', '.join(sorted(unknown))}")
    return manifest
