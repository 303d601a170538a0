"""`ember logits`: what a model expects after a prompt, shown or written to a file."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import numpy as np

import ember
from ember.cli import options
from ember.cli.arrays import check_out, write_captures
from ember.sampling import softmax
from ember.work import Floats

if TYPE_CHECKING:
    from ember.model import Model

SHOWN_BY_DEFAULT: Final = 10


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that may come next."""

    token_id: int
    piece: str | None
    """Its text; None where its bytes are no whole characters."""
    bytes: str
    """Its bytes in hexadecimal."""
    logit: float
    log_probability: float
    """Natural logarithm."""


@click.command(
    epilog='Examples: ember logits builtin:sarf-nano "الجذر ك ت ب على وزن";  ember logits model.gguf a b --out l.npy'
)
@click.argument("model")
@click.argument("prompts", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write all logits [prompts, vocabulary] to a .npy or .npz."
)
@click.option(
    "--top", type=click.IntRange(min=1), metavar="K", help="Show the K likeliest tokens; default 10, or --out only."
)
@options.engine
@options.as_json
def logits(
    model: str,
    prompts: tuple[str, ...],
    out: Path | None,
    top: int | None,
    route: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Show the likeliest tokens after each of PROMPTS, or write the logits after its last token to a file.

    Equal logits are in the order of their ids. With --out the origin of the values is written to OUT.json.
    """
    if out is not None:
        check_out(out, 1)
    opened = ember.open(model, route=route, threads=threads)  # type: ignore[arg-type]
    options.say_notes(opened.notes())
    found = opened.capture(list(prompts), site="after_logits")
    rows = found["after_logits"]
    shown = top or (SHOWN_BY_DEFAULT if out is None else 0)
    likeliest = [_likeliest(opened, row, shown) for row in rows]
    origin = write_captures(out, found) if out is not None else None
    if as_json:
        listed = [
            {"prompt": prompt, "top": [asdict(one) for one in mine]}
            for prompt, mine in zip(prompts, likeliest, strict=True)
        ]
        written = {"out": str(out), "origin": str(origin), "shape": list(rows.shape)} if out else {}
        options.say(json.dumps({"prompts": listed, **written}, ensure_ascii=False) + "\n")
        return
    if shown:
        options.say("\n\n".join(map(_table, prompts, likeliest)) + "\n")
    if out is not None:
        options.say(f"after_logits {list(rows.shape)} float32\nwritten to {out}\n")


def _likeliest(model: "Model", row: Floats, count: int) -> list[Candidate]:
    """Return the likeliest tokens of a row of logits [V]."""
    chosen = np.argsort(-row, kind="stable")[:count]
    with np.errstate(divide="ignore"):  # a masked token has probability 0
        log_probabilities = np.log(softmax(row)[chosen])
    return [
        _candidate(model, int(token), float(row[token]), float(log_probability))
        for token, log_probability in zip(chosen, log_probabilities, strict=True)
    ]


def _candidate(model: "Model", token: int, logit: float, log_probability: float) -> Candidate:
    if token >= model.tokenizer.vocab_size:  # rows of the head that stand for no token
        return Candidate(token, None, "", logit, log_probability)
    raw = model.tokenizer.token_bytes(token)
    try:
        piece: str | None = raw.decode()
    except UnicodeDecodeError:
        piece = None
    return Candidate(token, piece, raw.hex(), logit, log_probability)


def _table(prompt: str, candidates: list[Candidate]) -> str:
    lines = [repr(prompt), "  probability     logit      id  piece"]
    for one in candidates:
        shown = repr(bytes.fromhex(one.bytes) if one.piece is None else one.piece)
        # the piece stands last, so that text from right to left cannot carry the numbers away
        lines.append(f"  {np.exp(one.log_probability):11.6f} {one.logit:9.3f} {one.token_id:7}  {shown}")
    return "\n".join(lines)
