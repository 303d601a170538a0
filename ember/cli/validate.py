"""`ember validate`: is Ember right about this model? Every site of every layer against a reference."""

import json
from pathlib import Path
from typing import Any

import click

import ember
from ember.assets_path import resolve_model
from ember.cli import options
from ember.errors import InputError
from ember.model import Model
from ember.validation import report
from ember.validation.compare import compare
from ember.validation.prompts import default_ids, read_texts, to_ids
from ember.validation.record import GREEDY_STEPS, PACKAGES, record, record_elsewhere
from ember.validation.recording import Recording, read_recording


@click.command(
    epilog="Examples: ember validate model.gguf;  ember validate model.gguf --against transformers "
    "--reference-python refvenv/bin/python;  ember validate model.gguf --against recorded.npz"
)
@click.argument("model")
@click.option(
    "--against",
    metavar="llama.cpp|transformers|REF.npz",
    default="llama.cpp",
    show_default=True,
    help="Who is right: a library (extra `reference`), or values recorded from one.",
)
@click.option("--prompts", type=click.Path(path_type=Path), help="A text file, one prompt a line.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the record of the comparison to a .json.")
@click.option(
    "--reference-python", type=click.Path(path_type=Path), help="A Python that has the reference, if this one has not."
)
@options.engine
@options.as_json
def validate(
    model: str,
    against: str,
    prompts: Path | None,
    out: Path | None,
    reference_python: Path | None,
    route: str,
    threads: int | None,
    as_json: bool,
) -> int:
    """Compare logits and every site of every layer of MODEL with a reference, at the last token of each prompt.

    Stock llama.cpp rounds activations beside weights that are not F32, so it is given a temporary F32 copy of the
    file, and the exact GELU in place of its half-precision table. Exit status 1 if anything is out of bounds.
    """
    _check_out(out)
    opened = ember.open(model, route=route, threads=threads)  # type: ignore[arg-type]
    recording = _reference(opened, resolve_model(model), against, prompts, reference_python)
    found = compare(opened, recording)
    made = report.make_record(opened, recording, found, named=model)
    _write(out, made)
    if as_json:
        click.echo(json.dumps(made, ensure_ascii=False))
    else:
        click.echo("\n".join([*report.table(found), *report.verdict(recording, found)]))
    return 0 if found.agrees else 1


def _reference(opened: Model, path: Path, against: str, prompts: Path | None, python: Path | None) -> Recording:
    if against not in PACKAGES:
        if Path(against).suffix != ".npz":
            raise InputError(f"--against {against}: expected {', '.join(PACKAGES)}, or a recording (.npz)")
        if prompts or python:
            raise InputError(
                f"--against {against}: a recording has its own prompts; leave out --prompts and the Python"
            )
        return read_recording(Path(against))
    ids = to_ids(opened, read_texts(prompts), GREEDY_STEPS) if prompts else default_ids(opened, GREEDY_STEPS)
    if python:
        return record_elsewhere(python, against, path, ids)  # type: ignore[arg-type]
    return record(against, path, ids)  # type: ignore[arg-type]


def _check_out(out: Path | None) -> None:
    if out and (out.suffix != ".json" or not out.absolute().parent.is_dir()):
        raise InputError(f"--out {out}: expected a .json in a folder that exists")


def _write(out: Path | None, made: dict[str, Any]) -> None:
    if out is None:
        return
    try:
        out.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from error
