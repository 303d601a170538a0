"""What was run, on what, and how: in sentences, then hash by hash."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ember.sites import SITES
from pipelines.hook_report import layers_text
from pipelines.manifest import CaptureRecord, Manifest
from pipelines.report.blocks import (
    Block,
    Cell,
    Chapter,
    Code,
    Paragraph,
    Points,
    Prose,
    Quoted,
    Section,
    Table,
    count,
    listed,
)
from pipelines.report.facts import Facts
from pipelines.report.wording import acted_said, position_said, source_said, where_said

WHERE: Final = {
    "before_layer": "the hidden state that enters a layer",
    "after_attention": "what attention adds to the hidden state",
    "after_mlp": "what the MLP adds to the hidden state",
    "after_layer": "the hidden state that leaves a layer",
    "before_logits": "the state after the final norm, from which the next token is predicted",
    "after_logits": "the scores of all tokens as the next one",
}
ROUTES: Final = {"fast": "Ember’s compiled kernels", "reference": "Ember’s plain NumPy implementation"}
CONTRACTS: Final = {
    1: "values do not depend on the number of workers, their order or retries, but may depend, by rounding, on "
    "which prompts were computed together, which the plan fixed",
    2: "a prompt’s values do not depend, to the last bit, on which prompts were computed together with it",
}
RUNGS: Final = {
    "smoke": "it was only shown that predictions are better than chance",
    "golden logits": "its logits were compared with recorded ones of another implementation",
    "activation reference": "its hidden states were compared, layer by layer, with those of another implementation",
    "probes": "beside its hidden states, what probes find in them was compared",
    "interventions": "beside its hidden states, effects of interventions were compared",
}


def provenance(facts: Facts) -> Chapter:
    """What was run."""
    manifest = facts.manifest
    blocks: list[Block] = [
        Paragraph(_prompts(facts)),
        *_made(manifest),
        Paragraph(_model(facts)),
        Paragraph(_tokenizer(manifest)),
        Paragraph(_computation(manifest)),
        Paragraph(_validation(manifest)),
        Paragraph(_answers(manifest)),
        *_captures(manifest),
        *_acting(facts),
        *_findings(facts),
        _hashes(manifest),
    ]
    return Chapter(Section("provenance", "What was run", tuple(blocks)), (_summary(facts),), _record(manifest))


def _summary(facts: Facts) -> Prose:
    origin = facts.manifest.origin
    done = _kept(facts.manifest)
    kept = f", and kept {done}" if done else ""
    changed = " The model was changed while it ran." if facts.changed else ""
    digest = facts.manifest.inputs.model_sha256
    return (
        "The run ", Quoted(origin.name), f" gave {count(facts.manifest.samples, 'prompt')} to ",
        Quoted(str(origin.model.get("name") or "a model without a name")), f" (sha256 {digest[:8]}…){kept}.{changed}",
    )  # fmt: skip


def _record(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.origin.name,
        "status": manifest.status,
        "samples": manifest.samples,
        "failed": len(manifest.failed_samples),
        "model": manifest.origin.model.get("name"),
        "model_sha256": manifest.inputs.model_sha256,
        "input_hash": manifest.input_hash,
        "semantic_hash": manifest.semantic_hash,
        "rung": manifest.origin.validation.get("rung"),
    }


def _prompts(facts: Facts) -> Prose:
    manifest, stimuli = facts.manifest, facts.stimuli
    failed = len(manifest.failed_samples)
    lengths = [row["n_tokens"] for row in stimuli]
    templates = dict.fromkeys(row["template"] for row in stimuli if row["template"])
    following = sum(bool(row["template"]) for row in stimuli)
    who = "They" if following == len(stimuli) else f"{following:,} of them"
    made: Prose = (f" {who} follow {count(len(templates), 'template')}.",) if templates else ()
    labels = [column for column in facts.columns if column.name != "template"]
    told: list[Any] = []
    for column in labels[:8]:
        told += [", " if told else " Labels: ", Code(column.name), f" ({count(len(column.classes), 'value')})"]
    more = f" and {len(labels) - 8} more" if len(labels) > 8 else ""
    lost = f"; {failed} of them failed and are left out of everything below" if failed else ""
    size = _sizes(lengths) if lengths else ""
    return (
        "The run ", Quoted(manifest.origin.name), f" gave {count(manifest.samples, 'prompt')} to one model{lost}.",
        size, *made, *told, *([f"{more}."] if told else []),
    )  # fmt: skip


def _sizes(lengths: Sequence[int]) -> str:
    shortest, longest = min(lengths), max(lengths)
    many = f"{shortest:,} to {longest:,} tokens" if shortest < longest else count(shortest, "token")
    return f" It has {many}." if len(lengths) == 1 else f" They have {many}{' each' * (shortest == longest)}."


def _made(manifest: Manifest) -> Iterator[Block]:
    """Where the prompts come from, and what was done to them."""
    if manifest.origin.stimuli is not None:
        yield Paragraph(source_said(manifest.origin.stimuli))


def _model(facts: Facts) -> Prose:
    manifest = facts.manifest
    model, inputs = manifest.origin.model, manifest.inputs
    types = model.get("quant_types", {})
    kinds = sorted(types.items(), key=lambda pair: (-pair[1], pair[0]))
    weights = listed(
        [f"{n} {'are' if not i else ''} of type {name}".replace("  ", " ") for i, (name, n) in enumerate(kinds)]
    )
    named: Prose = (" (in the config ", Code(facts.config.model.path.rpartition("/")[2]), ")") if facts.config else ()
    rest = ", ".join(
        f"{said} {model[key]:,}"
        for key, said in (("vocab_size", "vocabulary"), ("context_length", "context"))
        if isinstance(model.get(key), int)
    )
    return (
        "The model is ", Quoted(str(model.get("name") or "without a name")), *named, ", the file whose sha256 is ",
        Code(inputs.model_sha256), f". Its architecture is {model.get('architecture')}: {model.get('n_layers')} layers "
        f"of width {model.get('hidden_size')}" + (f", {rest}" if rest else "") + ".",
        f" Of its tensors {weights}." if weights else "",
    )  # fmt: skip


def _tokenizer(manifest: Manifest) -> Prose:
    found = manifest.origin.tokenizer
    parts: list[Any] = ["Text was cut into tokens by the tokenizer in the same file (", Code(str(found.get("model")))]
    if found.get("pre"):
        parts += [", ", Code(str(found["pre"]))]
    parts.append(")")
    if "add_bos" in found:
        whose = "as the file asks" if found.get("add_bos_from") == "file" else "as the config asks"
        parts.append(f"; {'a' if found['add_bos'] else 'no'} token for the beginning is put in front, {whose}")
    return (*parts, ".")


def _computation(manifest: Manifest) -> Prose:
    numerics = manifest.origin.numerics
    route, contract = str(numerics.get("route")), numerics.get("contract")
    versions = numerics.get("versions", {})
    blas = ", ".join(
        f"{one.get('library')} {one.get('version')} ({one.get('kernel')} kernels)" for one in numerics.get("blas", [])
    )
    said = ", ".join(f"{name} {versions[name]}" for name in ("ember", "numpy", "numba", "python") if name in versions)
    parts: list[Any] = ["It was computed in ", "32-bit floating point" if numerics.get("mode") == "f32" else "mode "]
    if numerics.get("mode") != "f32":
        parts.append(Code(str(numerics.get("mode"))))
    parts += [" on the route ", Code(route), f" ({ROUTES[route]})" if route in ROUTES else ""]
    parts.append("".join([f", by {said}" if said else "", f", {blas}" if blas else "", "."]))
    if contract in CONTRACTS:
        parts.append(f" Contract {contract} held: {CONTRACTS[contract]}.")
    return tuple(parts)


def _validation(manifest: Manifest) -> Prose:
    found = manifest.origin.validation
    rung = str(found.get("rung"))
    parts: list[Any] = ["For this architecture, these types of weights and this route the rung of validation is "]
    parts += [Code(rung), f": {RUNGS[rung]}." if rung in RUNGS else "."]
    if models := found.get("models"):
        parts.append(f" Shown on {', '.join(map(str, models))}.")
    if (guard := manifest.origin.guard) and "nll" in guard:
        parts.append(
            f" In this run the model’s loss on its own prompts was {guard['nll']:.2f} nats a token, where guessing "
            f"would give {guard['ln_vocab']:.2f}."
        )
    return tuple(parts)


def _answers(manifest: Manifest) -> Prose:
    parts: list[Any] = []
    if (found := manifest.origin.generation) is not None:
        greedy = not found.get("temperature")
        how = (
            "always the likeliest" if greedy else f"drawn at temperature {found['temperature']:g}, seed {found['seed']}"
        )
        parts.append(
            f"Up to {count(found['max_tokens'], 'token was', 'tokens were')} generated after each prompt, {how}. "
        )
    if (scoring := manifest.origin.scoring) is not None:
        texts = count(scoring.get("continuations", 0), "text given in advance was", "texts given in advance were")
        parts.append(f"{texts} scored after the prompts. ")
    kept = _kept(manifest)
    only = f": the run holds {kept} only" if kept else ""
    return tuple(parts) or (f"Nothing was generated and nothing scored{only}.",)


def _captures(manifest: Manifest) -> Iterator[Block]:
    captures = manifest.origin.captures
    if not captures:
        yield Paragraph(("No hidden states were kept.",))
        return
    rows = tuple(_capture_row(one) for one in captures)
    head = ("capture", "site", "what that is", "layers", "tokens", "width")
    kept = f"Hidden states that were kept, as {manifest.origin.dtype}. Layers count from 0."
    yield Table((kept,), head, rows)


def _capture_row(one: CaptureRecord) -> tuple[Cell, ...]:
    layers = "–" if not SITES[one.site].per_layer else layers_text(list(one.layers)).removeprefix("layers ")
    chosen: Prose = (" of prompts ", *where_said(dict(one.where))) if one.where else ()
    told = f"{WHERE[one.site]}{', before what acts there' if one.observe == 'before' else ''}"
    return Quoted(one.name), Code(one.site), told, layers, (position_said(one.position), *chosen), f"{one.width}"


def _acting(facts: Facts) -> Iterator[Block]:
    hooks = facts.manifest.origin.hooks or {}
    found = [*hooks.get("interventions", []), *hooks.get("experiments", [])]
    kept = _kept(facts.manifest)
    if facts.changed:
        whose = f" {kept.capitalize()} are those of the changed model." if kept else ""
        yield Paragraph((f"What acted on the model while it ran.{whose}",))
    else:
        what = (
            "Experiments looked on while the model ran and changed nothing"
            if found
            else "Nothing acted on the model while it ran"
        )
        yield Paragraph((f"{what}: {kept} are its own." if kept else f"{what}.",))
    if found:
        yield Points(tuple(acted_said(one) for one in found))


def _kept(manifest: Manifest) -> str:
    """What of the model the run holds, in words; empty for nothing."""
    origin = manifest.origin
    there = (
        ("answers", origin.generation), ("scores", origin.scoring), ("hidden states", origin.captures),
        ("attention weights", origin.attention),
    )  # fmt: skip
    return listed([name for name, asked in there if asked])


def _findings(facts: Facts) -> Iterator[Block]:
    counts = Counter(finding.experiment for finding in facts.run.findings)
    if counts:
        told: list[Any] = []
        for name, n in sorted(counts.items()):
            told += [", " if told else "", Code(name), f" ({count(n, 'prompt')})"]
        yield Paragraph(("What experiments found stands in the run under ", Code("experiments/"), ": ", *told, "."))


def _hashes(manifest: Manifest) -> Table:
    inputs = manifest.inputs
    names = (
        ("semantic_hash", manifest.semantic_hash, "everything the run says: equal for equal values"),
        ("input_hash", manifest.input_hash, "everything that decides its values"),
        ("model_sha256", inputs.model_sha256, "the model’s file"),
        ("tokenizer_sha256", inputs.tokenizer_sha256, "the tokenizer and its settings"),
        ("stimuli_sha256", inputs.stimuli_sha256, "prompts, labels and expected texts"),
        ("config_sha256", inputs.config_sha256, "the config without what decides only time and place"),
        ("plan_sha256", inputs.plan_sha256, "units, token ids and positions"),
        ("hooks_sha256", inputs.hooks_sha256, "what is taken and changed, where"),
    )
    rows = tuple((Code(name), Code(value), said) for name, value, said in names if value)
    caption = "Hashes. Every file of the run was checked against them before this page was made."
    return Table((caption,), ("name", "sha256", "of what"), rows)
