"""`ember pipeline status`."""

import json
from pathlib import Path

import click


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def status(directory: Path, as_json: bool) -> None:
    """Show how far the run in DIRECTORY is: done, failed and pending prompts, who writes it, what to do next.

    \b
    Example:
      ember pipeline status outputs/roots
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.status import read_status

    found = read_status(directory)
    click.echo(json.dumps(found.record, ensure_ascii=False) if as_json else "\n".join(found.lines()))
