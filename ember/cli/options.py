"""Options that several verbs share."""

import json
from collections.abc import Callable
from types import TracebackType
from typing import Any

import click
import numpy as np

from ember.errors import InputError

route = click.option(
    "--route",
    type=click.Choice(["auto", "reference", "fast"]),
    default="auto",
    show_default=True,
    help="Plain NumPy, which defines what is right, or compiled kernels.",
)
threads = click.option("--threads", type=click.IntRange(min=1), default=None, help="BLAS threads; default: all cores.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for machines.")


def say(text: str) -> None:
    """Write text to standard output at once and as it is: in UTF-8, whatever the terminal's language is set to."""
    click.echo(text.encode(), nl=False)


def found_json(record: dict[str, Any], indent: int | None = None) -> str:
    """Return JSON of a record that holds what experiments found; NumPy's numbers and arrays count as plain data.

    Raises InputError for what JSON cannot say, NaN and infinities among it.
    """
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=indent, default=_plain)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"an experiment's results() are not plain data for JSON: {error}; "
            "expected finite numbers, texts, lists and dictionaries"
        ) from error
    return text


def _plain(found: object) -> Any:
    if isinstance(found, np.generic | np.ndarray):
        return found.tolist()
    raise TypeError(f"a {type(found).__name__} is none of its types")


class Line:
    """A line of standard output that grows piece by piece, and is ended however the writing of it ends."""

    def __init__(self, *, shown: bool = True) -> None:
        self._shown, self._begun = shown, False

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if self._shown and (self._begun or kind is None):
            say("\n")

    def add(self, piece: str) -> None:
        """Show a piece of text."""
        if self._shown and piece:
            self._begun = True
            say(piece)


def say_notes(notes: list[str]) -> None:
    """Print on stderr what deserves a look."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


def engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --route and --threads."""
    return route(threads(command))
