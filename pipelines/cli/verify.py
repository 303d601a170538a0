"""`ember pipeline verify DIR`: compare a run's files with its manifest."""

import json
from pathlib import Path

import click

from ember.errors import InputError
from pipelines.manifest import Manifest
from pipelines.verify import Verdict, check, refusal


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for machines.")
def verify(directory: Path, as_json: bool) -> int:
    """Check every file of a finished run against its manifest: sizes, hashes, rows, order, ids, and nothing besides.

    Exit status 0 if the run is sound, 1 if not, with every problem listed.
    """
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory; give the output.dir of a run")
    verdict = check(directory)
    if as_json:
        click.echo(json.dumps(summary(verdict), ensure_ascii=False, indent=1))
        return 0 if verdict.sound else 1
    if not verdict.sound or verdict.manifest is None:
        raise refusal(verdict)
    click.echo(_told(directory, verdict.manifest))
    return 0


def summary(verdict: Verdict) -> dict[str, object]:
    """Return a verdict as plain data; what only a readable manifest tells is absent without one."""
    told: dict[str, object] = {
        "directory": str(verdict.directory),
        "sound": verdict.sound,
        "problems": list(verdict.problems),
    }
    if (manifest := verdict.manifest) is None:
        return told
    return told | {
        "status": manifest.status,
        "samples": manifest.samples,
        "failed_samples": list(manifest.failed_samples),
        "parts": len(manifest.parts),
        "rows": {table: verdict.rows(table) for table in sorted({part.table for part in manifest.parts})},
        "bytes": sum(part.bytes for part in manifest.parts),
        "input_hash": manifest.input_hash,
        "semantic_hash": manifest.semantic_hash,
    }


def _told(directory: Path, manifest: Manifest) -> str:
    size = sum(part.bytes for part in manifest.parts) / 1e6
    failed = f", {len(manifest.failed_samples)} of them failed" if manifest.failed_samples else ""
    return (
        f"{directory}: sound. {manifest.samples} samples{failed}, {len(manifest.parts)} files, {size:.1f} MB\n"
        f"semantic hash {manifest.semantic_hash}"
    )
