"""Options that several verbs share."""

from collections.abc import Callable
from typing import Any

import click

route = click.option(
    "--route",
    type=click.Choice(["auto", "reference", "fast"]),
    default="auto",
    show_default=True,
    help="Plain NumPy, which defines what is right, or compiled kernels.",
)
threads = click.option("--threads", type=click.IntRange(min=1), default=None, help="BLAS threads; default: all cores.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for machines.")


def say_notes(notes: list[str]) -> None:
    """Print on stderr what deserves a look."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


def engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --route and --threads."""
    return route(threads(command))
