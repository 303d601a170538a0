"""`ember pipeline geometry`."""

import json
from pathlib import Path

import click


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder; by default DIRECTORY/geometry.")
@click.option("--partial", is_flag=True, help="Use a run in which some prompts failed, without them.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Decides which stimuli are compared, and shuffles.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for machines.")
def geometry(directory: Path, out: Path | None, partial: bool, seed: int, as_json: bool) -> None:
    """Measure how layers of the run in DIRECTORY resemble each other and its labels.

    Writes geometry.parquet (linear CKA, RSA, canonical correlations, distance of right and wrong answers, tokens per
    word, byte and character), maps.parquet (two-dimensional PCA maps) and manifest.json. The run is verified first.

    \b
    Example:
      ember pipeline geometry outputs/roots
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.geometry import measure

    found = measure(directory, out=out, seed=seed, partial=partial)
    counts = {name: sum(one.measure == name for one in found.measures) for name in found.names}
    if as_json:
        click.echo(json.dumps({"directory": str(found.directory), "measures": counts}, ensure_ascii=False))
        return
    told = ", ".join(f"{number} {name}" for name, number in counts.items())
    click.echo(f"{told}\nwrote geometry.parquet, maps.parquet, manifest.json in {found.directory}")
