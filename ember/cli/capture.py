"""`ember capture`: hidden states of prompts, to a file of arrays with its origin beside it."""

import json
from pathlib import Path

import click
import numpy as np

import ember
from ember.capture import Captures
from ember.cli import options
from ember.errors import InputError


@click.command(epilog='Example: ember capture builtin:sarf-nano "الجذر ك ت ب" --out states.npz')
@click.argument("model")
@click.argument("prompts", nargs=-1, required=True)
@click.option("--site", "sites", multiple=True, default=("after_layer",), show_default=True, help="May be repeated.")
@click.option("--layers", default="all", show_default=True, help="`all`, or numbers with commas; -1 is the last.")
@click.option(
    "--position", default="last", show_default=True, help="`last`, `all`, `mean`, or an index; -1 is the last."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A .npz, or .npy for a single site.")
@options.engine
@options.as_json
def capture(
    model: str,
    prompts: tuple[str, ...],
    sites: tuple[str, ...],
    layers: str,
    position: str,
    out: Path,
    route: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write the hidden states of PROMPTS to a file, and where they come from to OUT.json."""
    if out.suffix not in (".npz", ".npy") or (out.suffix == ".npy" and len(sites) > 1):
        raise InputError(f"--out {out}: expected a .npz, or a .npy with a single site")
    opened = ember.open(model, route=route, threads=threads)  # type: ignore[arg-type]
    options.say_notes(opened.notes())
    found = opened.capture(list(prompts), site=list(sites), layers=_layers(layers), position=_position(position))
    _write(out, found)
    beside = out.with_suffix(out.suffix + ".json")
    try:
        beside.write_text(json.dumps(found.provenance, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{beside}: cannot be written: {error.strerror}") from error
    shapes = {site: list(found[site].shape) for site in sites}
    click.echo(
        json.dumps({"out": str(out), "origin": str(beside), "shapes": shapes}) if as_json else _told(out, shapes)
    )


def _told(out: Path, shapes: dict[str, list[int]]) -> str:
    return "\n".join([f"{site} {shape} float32" for site, shape in shapes.items()] + [f"written to {out}"])


def _write(out: Path, found: Captures) -> None:
    try:
        with out.open("wb") as file:
            if out.suffix == ".npy":
                np.save(file, next(iter(found.arrays.values())))
            else:
                np.savez(file, allow_pickle=False, rows=found.rows, **dict(found.arrays))
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from error


def _layers(text: str) -> str | list[int]:
    if text == "all":
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--layers {text!r}: expected `all` or numbers with commas") from None


def _position(text: str) -> str | int:
    try:
        return int(text)
    except ValueError:
        return text
