"""What other commands put beside a run (probes, geometry), read only if it is whole and was made from this very run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipelines import placing, tables
from pipelines.errors import VerifyError
from pipelines.report.facts import Facts, Row

MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of results."""

    name: str
    """What it is called, and its folder in the run."""
    schema: str
    again: str
    """The command that makes it."""


PROBES: Final = Kind("probes", "ember.probe-results/v2", "ember probe")
GEOMETRY: Final = Kind("geometry", "ember.geometry/v1", "ember pipeline geometry")


def open_beside(facts: Facts, kind: Kind, folder: Path | None = None) -> tuple[Path, dict[str, Any]] | None:
    """Find the results of a kind, by default in the run's directory; return their folder and manifest, None if absent.

    Raises VerifyError for results that are unfinished, or were made from another run.
    """
    place = folder or facts.run.directory / kind.name
    if folder is None and not place.is_dir():
        return None
    manifest = _manifest(place, kind)
    if manifest["run"]["semantic_hash"] != facts.manifest.semantic_hash:
        raise VerifyError(
            f"{place} holds {kind.name} of another run ({manifest['run'].get('name')!r}); make those of this one "
            f"with `{kind.again}`, or name their folder"
        )
    return place, manifest


def _manifest(place: Path, kind: Kind) -> dict[str, Any]:
    path = place / MANIFEST
    if not path.is_file():
        raise VerifyError(f"{place} holds no finished {kind.name}: there is no {MANIFEST}; use `{kind.again}` again")
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        if found["schema_version"] != kind.schema:
            raise ValueError(f"its schema is {found['schema_version']!r}, expected {kind.schema!r}")
        _ = found["run"]["semantic_hash"], [(one["path"], one["sha256"]) for one in found["files"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise VerifyError(f"{path} is no manifest of {kind.name} ({error}); use `{kind.again}` again") from error
    return found


def read_rows(place: Path, manifest: dict[str, Any], name: str) -> list[Row]:
    """Read a table that the manifest lists; raises VerifyError if it is not the file that was recorded."""
    path = place / name
    known = {one["path"]: one["sha256"] for one in manifest["files"]}
    if not path.is_file() or placing.sha256_file(path) != known.get(name):
        raise VerifyError(f"{path} is not the file that {MANIFEST} beside it records; make it again")
    try:
        return [row for group in tables.read_groups(path) for row in group.to_pylist()]
    except tables.DAMAGE as error:
        raise VerifyError(f"{path} cannot be read ({error}); make it again") from error
