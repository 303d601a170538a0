"""`ember tokenize`: what a model's tokenizer makes of a text, byte by byte."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import click

from ember.cli import options
from ember.errors import InputError
from ember.positions import tokens_of_span
from ember.tokenizer import Encoding, Tokenizer, load_tokenizer
from ember.tokenizer.comparison import Comparison, OtherTokenizer, first_id_difference, vocabulary_difference


@dataclass(frozen=True, slots=True)
class _Span:
    """A stretch of the text, in bytes, and the tokens that meet it."""

    start: int
    end: int
    first_token: int
    last_token: int
    boundary: str
    """`exact`, or `expanded` if the tokens hold bytes on either side of the stretch."""


@click.command(
    epilog="Examples: ember tokenize builtin:sarf-nano 'كتب الطالب' --span 0:6;  cat text | ember tokenize model.gguf -"
)
@click.argument("model")
@click.argument("text")
@click.option("--bos/--no-bos", "bos", default=None, help="Add a BOS or not; default: as the file says.")
@click.option("--parse-special", is_flag=True, help="Take control tokens that are spelt out for what they name.")
@click.option("--span", metavar="START:END", help="Show which tokens meet these bytes of the text (END not included).")
@click.option("--compare", metavar="TOKENIZER.JSON", help="Show where a Hugging Face tokenizer differs; status 1 then.")
@options.as_json
@click.pass_context
def tokenize(
    context: click.Context,
    model: str,
    text: str,
    bos: bool | None,
    parse_special: bool,
    span: str | None,
    compare: str | None,
    as_json: bool,
) -> None:
    """Show ids, pieces and byte offsets of TEXT (`-`: standard input, as it is).

    A piece that is not made of whole characters is shown as bytes. Nothing is normalised.
    """
    tokenizer = load_tokenizer(model)
    if bos is not None:
        tokenizer = tokenizer.with_add_bos(bos)
    given = _stdin() if text == "-" else text
    encoding = tokenizer.encode(given, parse_special=parse_special)
    found = _span(span, encoding, len(given.encode())) if span else None
    comparison = _compare(tokenizer, compare, given, parse_special=parse_special) if compare else None
    if as_json:
        click.echo(_for_machines(model, given, tokenizer, encoding, found, comparison))
    else:
        click.echo(_for_people(tokenizer, encoding, found))
        for line in comparison.lines(len(encoding)) if comparison else ():
            click.echo(line)
        _warn(tokenizer, [] if parse_special else tokenizer.control_spellings(given))
    if comparison and comparison.differs:
        context.exit(1)


def _stdin() -> str:
    data = sys.stdin.buffer.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input: byte {error.start}, 0x{data[error.start]:02X}, is not UTF-8 ({error.reason}); "
            "convert the text to UTF-8 first"
        ) from None


def _span(given: str, encoding: Encoding, size: int) -> _Span:
    first, colon, last = given.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal():
        raise InputError(f"--span {given!r}: expected two numbers of bytes, START:END, as 0:6")
    start, end = int(first), int(last)
    if not start < end <= size:
        raise InputError(f"--span {given}: expected START < END within the text's {size} bytes")
    tokens = tokens_of_span(encoding.byte_offsets, start, end)
    covered = encoding.byte_offsets[tokens[0]][0], encoding.byte_offsets[tokens[1] - 1][1]
    return _Span(start, end, tokens[0], tokens[1] - 1, "exact" if covered == (start, end) else "expanded")


def _compare(tokenizer: Tokenizer, path: str, text: str, *, parse_special: bool) -> Comparison:
    other = OtherTokenizer(path)
    ids = first_id_difference(tokenizer, other, text, parse_special=parse_special)
    return Comparison(str(other.path), ids, vocabulary_difference(tokenizer, other))


def _for_machines(
    model: str,
    text: str,
    tokenizer: Tokenizer,
    encoding: Encoding,
    span: _Span | None,
    comparison: Comparison | None,
) -> str:
    record: dict[str, Any] = {
        "model": model,
        "text": text,
        "ids": encoding.ids,
        "byte_offsets": encoding.byte_offsets,
        "pieces": [_text_or_none(tokenizer, token) for token in encoding.ids],
        "bytes": [tokenizer.token_bytes(token).hex() for token in encoding.ids],
        "special": [tokenizer.is_special(token) for token in encoding.ids],
        "control_spellings": tokenizer.control_spellings(text),
        "tokenizer": tokenizer.record(),
    }
    if span:
        record["span"] = {name: getattr(span, name) for name in _Span.__slots__}
    if comparison:
        record["comparison"] = asdict(comparison)
    return json.dumps(record, ensure_ascii=False)


def _text_or_none(tokenizer: Tokenizer, token: int) -> str | None:
    try:
        return tokenizer.token_bytes(token).decode()
    except UnicodeDecodeError:
        return None


def _for_people(tokenizer: Tokenizer, encoding: Encoding, span: _Span | None) -> str:
    lines = ["   index      id       bytes  piece"]
    for index, (token, (start, end)) in enumerate(zip(encoding.ids, encoding.byte_offsets, strict=True)):
        met = ">" if span and span.first_token <= index <= span.last_token else " "
        special = "special " if tokenizer.is_special(token) else ""
        # The piece stands last, so that text from right to left cannot carry the numbers away.
        lines.append(f"{met} {index:6} {token:7} {f'{start}-{end}':>11}  {special}{_piece(tokenizer, token)}")
    if span:
        which = f"tokens {span.first_token} to {span.last_token}"
        lines.append(f"bytes {span.start}-{span.end}: {which}, boundary {span.boundary}")
    bos = "added" if tokenizer.add_bos else "not added"
    lines.append(f"{len(encoding)} tokens; BOS {bos} (by {tokenizer.add_bos_from})")
    return "\n".join(lines)


def _piece(tokenizer: Tokenizer, token: int) -> str:
    text = _text_or_none(tokenizer, token)
    return repr(tokenizer.token_bytes(token) if text is None else text)


def _warn(tokenizer: Tokenizer, spelt: list[str]) -> None:
    for warning in tokenizer.warnings:
        click.echo(f"warning: {warning}", err=True)
    if spelt:
        named = ", ".join(map(repr, spelt))
        click.echo(f"warning: control tokens are spelt out and taken literally (--parse-special): {named}", err=True)
