"""`ember generate`: continue a prompt greedily."""

import json

import click

import ember
from ember.cli import options


@click.command(epilog='Example: ember generate builtin:sarf-nano "اسم الفاعل من الجذر ك ت ب:"')
@click.argument("model")
@click.argument("prompt")
@click.option("--max-tokens", type=click.IntRange(min=1), default=32, show_default=True)
@options.engine
@options.as_json
def generate(model: str, prompt: str, max_tokens: int, route: str, threads: int | None, as_json: bool) -> None:
    """Print the greedy continuation of PROMPT."""
    opened = ember.open(model, route=route, threads=threads)  # type: ignore[arg-type]
    options.say_notes(opened.notes())
    made = opened.generate(prompt, max_tokens=max_tokens)
    if as_json:
        record = {"token_ids": made.token_ids, "text": made.text, "stopped": made.stopped}
        click.echo(json.dumps(record, ensure_ascii=False))
    else:
        click.echo(made.text)
