"""`ember capture`: hidden states of prompts, to a file of arrays with its origin beside it."""

import json
from pathlib import Path

import click

import ember
from ember.cli import options
from ember.cli.arrays import check_out, write_captures
from ember.errors import InputError
from ember.hooks.loading import load_experiment


@click.command(epilog='Example: ember capture builtin:sarf-nano "الجذر ك ت ب" --out states.npz')
@click.argument("model")
@click.argument("prompts", nargs=-1, required=True)
@click.option("--site", "sites", multiple=True, default=("after_layer",), show_default=True, help="May be repeated.")
@click.option("--layers", default="all", show_default=True, help="`all`, or numbers with commas; -1 is the last.")
@click.option(
    "--position", default="last", show_default=True, help="`last`, `all`, `mean`, or an index; -1 is the last."
)
@click.option("--experiment", "specs", multiple=True, metavar="SPEC", help="NAME or module:Class. May be repeated.")
@click.option(
    "--observe",
    type=click.Choice(["before", "after"]),
    help="With an experiment that changes values: which side of what it does at a captured site.",
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
    specs: tuple[str, ...],
    observe: str | None,
    out: Path,
    route: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write the hidden states of PROMPTS to a file, and where they come from to OUT.json."""
    check_out(out, len(sites))
    experiments = [load_experiment(spec) for spec in specs]
    opened = ember.open(model, route=route, threads=threads)  # type: ignore[arg-type]
    for one in experiments:
        one.check(opened.context)
    options.say_notes(opened.notes())
    found = opened.capture(
        list(prompts),
        site=list(sites),
        layers=_layers(layers),
        position=_position(position),
        experiments=experiments,
        observe=observe,
    )
    beside = write_captures(out, found, experiments)
    shapes = {site: list(found[site].shape) for site in sites}
    record = json.dumps({"out": str(out), "origin": str(beside), "shapes": shapes}, ensure_ascii=False)
    options.say((record if as_json else _told(out, shapes)) + "\n")


def _told(out: Path, shapes: dict[str, list[int]]) -> str:
    return "\n".join([f"{site} {shape} float32" for site, shape in shapes.items()] + [f"written to {out}"])


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
