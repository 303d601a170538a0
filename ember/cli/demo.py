"""`ember demo`: the built-in model at work, in a second, with nothing to install or to fetch."""

import json
from typing import TYPE_CHECKING, Any, Final

import click

import ember
from ember.cli import options

if TYPE_CHECKING:
    from ember.model import Model

MODEL: Final = "builtin:sarf-nano"
PROMPTS: Final = (
    # prompt, what there is to see in it (what was read: ember/assets/sarf-nano.split.json)
    ("الجذر د ر س على وزن مَفْعُول:", "a root and a measure that were read together"),
    ("اسم الفاعل من الجذر ك ت ب:", "a root that was never read; the form by its name only"),
    ("صيغة المبالغة من الجذر ك ز ف:", "an invented root, never read"),
    ("اسم الفاعل من الجذر ق و ل:", "a hollow root: its w becomes a hamza; never read in this form"),
    ("ماضي الافتعال من الجذر ص ب ر:", "form VIII: the t becomes emphatic after ṣ; never read by this name"),
    ("مصدر الافتعال من الجذر و ص ل:", "form VIII: the w becomes a t; never read in this form"),
    ("The capital of France is", "not what it is for: it has read nothing but Arabic roots and forms"),
)
MAX_TOKENS: Final = 24


@click.command(
    epilog='Next: ember generate builtin:sarf-nano --interactive;  ember capture builtin:sarf-nano "…" --out h.npz'
)
@options.engine
@options.as_json
def demo(route: str, threads: int | None, as_json: bool) -> None:
    """Let the built-in model form Arabic words from roots, token by token as they come."""
    opened = ember.open(MODEL, route=route, threads=threads)  # type: ignore[arg-type]
    if as_json:
        told = [_record(opened, prompt, about) for prompt, about in PROMPTS]
        options.say(json.dumps({"model": MODEL, "route": opened.route, "prompts": told}, ensure_ascii=False) + "\n")
        return
    options.say(f"{MODEL}: {opened.n_layers} layers of width {opened.hidden_size}, {opened.route} route\n")
    for prompt, about in PROMPTS:
        options.say(f"\n# {about}\n")
        with options.Line() as line:
            line.add(prompt)
            opened.generate(prompt, max_tokens=MAX_TOKENS, on_token=lambda _token, piece: line.add(piece))


def _record(model: "Model", prompt: str, about: str) -> dict[str, Any]:
    made = model.generate(prompt, max_tokens=MAX_TOKENS)
    return {"prompt": prompt, "about": about, "text": made.text, "token_ids": made.token_ids, "stopped": made.stopped}
