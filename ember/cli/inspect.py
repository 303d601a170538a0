"""`ember inspect`: what a GGUF file holds and what Ember would make of it. Never runs anything out of the file."""

import json
from collections.abc import Sequence
from typing import Any, Final

import click

from ember.errors import EmberError
from ember.gguf import GGUFFile, open_gguf
from ember.gguf.describe import LONG, SHORT, describe, grouped, printable, visible

_REMARKS: Final = (("not given, taken as", "defaulted"), ("no effect", "unread_keys"), ("unused", "unused_tensors"))
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@click.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--tensors", "each_tensor", is_flag=True, help="List every tensor, with its offset and bytes.")
@click.option("--metadata", "long_values", is_flag=True, help="Show long texts and more of long arrays.")
def inspect(model: str, as_json: bool, each_tensor: bool, long_values: bool) -> None:
    """Show MODEL's metadata, tensors, types and sizes, and what Ember would make of it.

    MODEL is a .gguf file or any part of a split one. A file that Ember would refuse to run is shown all the same, with
    the reason, and the exit status is 0; it is 1 for a file that is broken.

    \b
    ember inspect model.gguf
    ember inspect model.gguf --tensors
    ember inspect model.gguf --json | jq .verdict
    """  # noqa: D301
    with open_gguf(_resolve(model)) as file:
        record = describe(file, LONG if long_values else SHORT) | {"verdict": verdict(file)}
    if as_json:
        click.echo(json.dumps(record, ensure_ascii=False, allow_nan=False))
        return
    for line in _lines(record, each_tensor):
        click.echo(line)


def _resolve(model: str) -> str:
    """Return the path of a model that may be named as `builtin:…`."""
    from ember.assets_path import resolve_model  # imports assets only when a model is opened

    return str(resolve_model(model))


def verdict(file: GGUFFile) -> dict[str, Any]:
    """Return what Ember would make of the file: whether it `runs`, `why` not, the `model`'s card, its `tokenizer`."""
    from ember.models import read_model  # the families are imported for this verb only

    found: dict[str, Any] = {"runs": True, "why": None, "tokenizer": _tokenizer(file)}
    try:
        return found | {"model": read_model(file).record()}
    except EmberError as error:
        return found | {"runs": False, "why": printable(str(error))}


def _tokenizer(file: GGUFFile) -> dict[str, Any]:
    from ember.tokenizer import load_tokenizer  # reads names and ids only; builds nothing yet

    try:
        tokenizer = load_tokenizer(file)
    except EmberError as error:
        return {"reads": False, "why": printable(str(error))}
    return {
        "reads": True,
        "why": None,
        "vocab_size": tokenizer.vocab_size,
        "add_bos": tokenizer.add_bos,
        "bos_id": tokenizer.bos_id,
        "eos_id": tokenizer.eos_id,
        "warnings": [printable(text) for text in tokenizer.warnings],
    }


def _lines(record: dict[str, Any], each_tensor: bool) -> list[str]:
    return [
        *_file_lines(record),
        "",
        f"metadata ({len(record['metadata'])} keys)",
        *(f"  {visible(key)} = {_shown(entry)}" for key, entry in record["metadata"].items()),
        "",
        f"tensors ({len(record['tensors'])}, {record['values']:,} values)",
        *(_each(record) if each_tensor else _groups(record)),
        "",
        "types",
        *(_type_line(row) for row in record["types"]),
        "",
        *_verdict_lines(record["verdict"]),
    ]


def _file_lines(record: dict[str, Any]) -> list[str]:
    head = f"GGUF version {record['version']}, alignment {record['alignment']}, {_size(record['bytes'])}"
    lines = [visible(record["path"]), f"  {head}"]
    if len(record["parts"]) > 1:
        lines += [f"  part {i}: {visible(p['path'])} ({_size(p['bytes'])})" for i, p in enumerate(record["parts"], 1)]
    return lines


def _shown(entry: dict[str, Any]) -> str:
    """Return a metadata value as one line: text quoted, cut where it is long."""
    if "length" in entry:
        items = ", ".join(_quoted(item) for item in entry["first"])
        rest = ", …" if entry["length"] > len(entry["first"]) else ""
        return f"[{items}{rest}] ({entry['length']:,} x {entry['type'][6:-1]})"
    cut = f"… ({entry['characters']:,} characters)" if "characters" in entry else ""
    return f"{_quoted(entry['value'])}{cut}"


def _quoted(value: Any) -> str:
    return f'"{visible(value)}"' if isinstance(value, str) else str(value)


def _each(record: dict[str, Any]) -> list[str]:
    several = len(record["parts"]) > 1
    rows = [
        (
            visible(info["name"]),
            info["type"],
            _shape(info["shape"]),
            _size(info["bytes"]),
            f"offset {info['offset']}" + (f" of part {info['part'] + 1}" if several else ""),
        )
        for info in record["tensors"]
    ]
    return _table(rows)


def _groups(record: dict[str, Any]) -> list[str]:
    rows = [
        (visible(name), info["type"], _shape(info["shape"]), _size(info["bytes"]), f"x {count}" if count > 1 else "")
        for name, count, info in grouped(record["tensors"])
    ]
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _shape(shape: list[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _type_line(row: dict[str, Any]) -> str:
    note = "" if row["supported"] else ", not decoded by Ember"
    tensors = f"{row['tensors']} tensor{'' if row['tensors'] == 1 else 's'}"
    return f"  {row['type']}: {tensors}, {row['values']:,} values, {_size(row['bytes'])}{note}"


def _size(count: int | None) -> str:
    """Return bytes for people; None is a type whose block size is not known."""
    if count is None:
        return "size unknown"
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _verdict_lines(found: dict[str, Any]) -> list[str]:
    return [*_tokenizer_lines(found["tokenizer"]), *(_model_lines(found) if found["runs"] else _refusal_lines(found))]


def _tokenizer_lines(found: dict[str, Any]) -> list[str]:
    if not found["reads"]:
        return ["Ember would not read its tokenizer", f"  {visible(found['why'])}"]
    bos = f"adds BOS {found['bos_id']}" if found["add_bos"] else "adds no BOS"
    head = f"Ember reads its tokenizer: {found['vocab_size']:,} tokens, {bos}, EOS {found['eos_id']}"
    return [head, *(f"  {visible(text)}" for text in found["warnings"])]


def _refusal_lines(found: dict[str, Any]) -> list[str]:
    return ["Ember would not run it", f"  {visible(found['why'])}"]


def _model_lines(found: dict[str, Any]) -> list[str]:
    model = found["model"]
    lines = [
        f"Ember runs it as {model['architecture']}: {model['n_layers']} layers of {model['hidden_size']}, "
        f"{model['vocab_size']:,} tokens, context {model['context_length']:,}"
    ]
    for title, key in _REMARKS:
        if model[key]:
            shown = [f"{k} = {v}" for k, v in model[key].items()] if isinstance(model[key], dict) else model[key]
            lines.append(f"  {title}: {visible(', '.join(shown))}")
    return lines
