"""`ember untrained`: a copy of a model with its weights shuffled, as a baseline."""

import json
from pathlib import Path

import click

from ember.assets_path import resolve_model
from ember.cli import options
from ember.gguf import open_gguf
from ember.gguf.untrained import write_untrained


@click.command(epilog="Example: ember untrained builtin:sarf-nano sarf-untrained.gguf --seed 1")
@click.argument("model")
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Decides the order.")
@options.as_json
def untrained(model: str, out: Path, seed: int, as_json: bool) -> None:
    """Write a copy of MODEL to OUT whose matrices keep their values and lose their places.

    What a probe reads from the copy's states, any network of this shape gives from its input. Run the same config on it
    with `guard: {allow_chance: true}`.
    """
    with open_gguf(resolve_model(model)) as file:
        write_untrained(file, out, seed)
        record = {"out": str(out), "seed": seed, "source_sha256": file.sha256()}
    click.echo(json.dumps(record) if as_json else f"{out}: the weights of {model} in an order drawn from seed {seed}")
