"""What a manifest holds as plain data, in words: sources of prompts, steps, positions, and what acted on the model."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pipelines.hook_report import layers_text
from pipelines.report.blocks import Code, Part, Prose, Quoted, count, listed

MADE: Final = {
    "root_pattern": "The prompts were made by Ember from roots, patterns and templates",
    "items": "The prompts are listed in the config",
    "file": "The prompts were read from a file",
}
FORMATS: Final = {
    "jsonl": "of JSON Lines",
    "csv": "of comma-separated values",
    "tsv": "of tab-separated values",
    "parquet": "in Parquet",
    "conllu": "in CoNLL-U, one for each word of its sentences",
    "camel": "of words with their analyses",
    "prompt_sets": "of prompt sets",
}
COUNTS: Final = {
    "rows": ("row", "rows"),
    "words": ("word", "words"),
    "sentences": ("sentence", "sentences"),
    "tokens_of_several_words": ("token of several words", "tokens of several words"),
    "empty_nodes_left_out": ("empty node left out", "empty nodes left out"),
    "texts_rebuilt": ("text rebuilt from its words", "texts rebuilt from their words"),
    "words_without_analysis_left_out": ("word without analysis left out", "words without analysis left out"),
    "words_of_several_analyses": ("word of several analyses", "words of several analyses"),
    "without_form": ("combination left out for want of a form", "combinations left out for want of a form"),
}
POSITIONS: Final = {
    "last": "the last token",
    "all": "every token",
    "mean": "the mean over tokens",
    "span": "the last token of the target",
    "generated": "every generated token",
}
SPANS: Final = {
    "first": "the first token of the target",
    "final": "the last token of the target",
    "all": "every token of the target",
    "mean": "the mean over the target’s tokens",
}
ALIKE: Final = {
    "text": "prompt, target and expected text",
    "folded": "prompt, target and expected text, letter case, white space and normal form aside",
}


def source_said(told: Mapping[str, Any]) -> Prose:
    """Where the prompts come from, as a manifest's `stimuli` tells it, what was done to the set, and to the texts."""
    source = dict(told.get("source", {}))
    kind = str(source.pop("kind", "unknown"))
    made = MADE.get(kind, f"The prompts are of the kind {kind}")
    kept = source.pop("format", None)
    form = f" {FORMATS.get(kept, f'of the format {kept}')}" if kept else ""
    counts = [_counted(name, n) for name, n in source.items() if n not in (0, None, {}, [])]
    parts: list[Part] = [f"{made}{form}", f" ({listed(counts)})." if counts else "."]
    steps = [step for step in told.get("steps", []) if step.get("step") != "read"]
    for step in steps:
        parts += [" ", *_step(step)]
    if not steps:
        parts.append(" None of them was left out.")
    return (*parts, *_normalised(told.get("normalize", {})))


def _counted(name: str, n: Any) -> str:
    if name in COUNTS and isinstance(n, int):
        return count(n, *COUNTS[name])
    return f"{name.replace('_', ' ')}: {n}"


def _step(step: Mapping[str, Any]) -> Iterator[Part]:
    before, after = step.get("before", 0), step.get("after", 0)
    yield f"Of {count(before, 'prompt')} {after:,} {'was' if after == 1 else 'were'} kept"
    match step["step"]:
        case "where":
            yield ": those "
            yield from where_said(step["labels"])
        case "deduplicate":
            yield f", the first of those with the same {ALIKE.get(step['by'], step['by'])}"
            if other := step.get("left_out_with_other_labels"):
                yield f"; {other:,} of those left out had other labels"
        case "sample":
            yield from _sample(step)
        case name:
            yield " by "
            yield Code(str(name))
    yield "."


def _sample(step: Mapping[str, Any]) -> Iterator[Part]:
    yield f", drawn with the seed {step['seed']}"
    if per := step.get("per"):
        yield f": {step['count']:,} of each value of "
        yield Code(per)
    if group := step.get("group"):
        yield f": all of {count(step['count'], 'value')} of "
        yield Code(group)


def _normalised(counts: Mapping[str, int]) -> Iterator[Part]:
    changed = {name: n for name, n in counts.items() if n}
    yield " Texts stand as they were given." if not changed else " Texts were normalised: "
    for i, (name, n) in enumerate(changed.items()):
        yield ", " if i else ""
        yield Code(name)
        yield f" changed {count(n, 'prompt')}"
    if changed:
        yield "."


def where_said(where: Mapping[str, Sequence[str]]) -> Prose:
    """Which prompts: `whose label upos is NOUN or VERB and whose …`."""
    parts: list[Part] = []
    for name, values in where.items():
        parts += [" and whose " if parts else "whose ", Code(name), " is "]
        for i, value in enumerate(values):
            parts += [" or ", Quoted(value)] if i else [Quoted(value)]
    return tuple(parts)


def position_said(written: Any) -> str:
    """A position as a config writes it (a word, a mapping, either as JSON), in words."""
    if isinstance(written, str) and written.startswith('{"'):
        written = json.loads(written)
    if isinstance(written, str):
        return POSITIONS.get(written, f"what {written} says")
    if "span" in written:
        nth = f", at place {written['occurrence']} of its text" if "occurrence" in written else ""
        return f"{SPANS[written['span']]}{nth}"
    (kind, n), *_ = written.items()
    if kind == "from_end":
        return "the last token" if n == 0 else f"the token {n} before the last"
    return f"generated token {n} (from 0)" if kind == "generated" else f"token {n} (from 0)"


def acted_said(one: Mapping[str, Any]) -> Prose:
    """What an intervention or experiment did, where, and to how many prompts."""
    rest = {key: value for key, value in one.items() if value not in (None, {}, [])}
    what = rest.pop("operation", None) or rest.pop("use", None) or "something"
    parts: list[Part] = [Code(str(what))]
    if site := rest.pop("site", None):
        parts += [" at ", Code(str(site))]
    if layers := rest.pop("layers", None):
        parts.append(f", {_layers(layers)}")
    if position := rest.pop("position", None):
        parts.append(f", {position_said(position)}")
    where, samples = rest.pop("where", None), rest.pop("samples", None)
    if samples is not None:
        parts.append(f", in {count(samples, 'prompt')}")
    if where:
        parts += [" ", *where_said(where)]
    return (*parts, *_further(rest))


def _layers(layers: Any) -> str:
    if isinstance(layers, list) and all(isinstance(layer, int) for layer in layers):
        return layers_text(layers)
    if isinstance(layers, dict):
        return f"layers {layers['from']} to {layers['to']}"
    return "all layers" if layers == "all" else f"layers {', '.join(layers) if isinstance(layers, list) else layers}"


def _further(rest: Mapping[str, Any], within: str = "") -> Iterator[Part]:
    """What has no sentence of its own: name and value, and what lies inside it likewise."""
    for name, value in rest.items():
        if isinstance(value, dict):
            yield from _further(value, f"{name} ")
        else:
            yield f"; {within}{name.replace('_', ' ')} "
            told = listed([str(part) for part in value]) if isinstance(value, list) else str(value)
            yield Code(told if len(told) <= 400 else f"{told[:400]}…")
