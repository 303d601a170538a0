"""`ember pipeline export RUN --format npy|csv`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "kind", type=click.Choice(["npy", "csv"]), required=True, help="NumPy arrays, or CSV.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write; by default RUN-npy or RUN-csv.")
@click.option(
    "--capture", "captures", multiple=True, help="A capture to write; may be given again. Default: all but logits."
)
@click.option("--force", is_flag=True, help="Replace an earlier export.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def export(
    run: Path, kind: Literal["npy", "csv"], out: Path | None, captures: tuple[str, ...], force: bool, as_json: bool
) -> None:
    """Write the finished run in directory RUN as NumPy arrays [stimuli, layers, hidden], or as CSV.

    With them come kept attention, the stimuli, which of these had the expected continuation, and where everything
    came from. The run is checked first. The folder appears whole or not at all, and nothing is overwritten without
    --force.

    \b
    Examples:
      ember pipeline export outputs/roots --format npy
      ember pipeline export outputs/roots --format csv --capture root_span
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.export import export_run

    found = export_run(run, kind, out, captures=captures, force=force)
    if as_json:
        told = asdict(found) | {"directory": str(found.directory)}
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    click.echo(f"{found.directory}: {len(found.files)} files")
    shapes = [*found.shapes.items(), *((f"attention {name}", shape) for name, shape in found.attention.items())]
    for name, shape in shapes:
        click.echo(f"  {name}: {' x '.join(map(str, shape))}")
