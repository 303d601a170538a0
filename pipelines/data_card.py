"""The data card of a run: a README.md that says what the tables hold, and lets the directory open as a dataset.

Its front matter names one configuration for each table, as the Hugging Face Hub reads it:

    datasets.load_dataset("outputs/roots", "activations")

Like the manifest, from which it is made, it holds no time, host or path. A README.md of the user's own is left alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from ember.sites import NO_LAYER
from pipelines.manifest import CaptureRecord, Manifest
from pipelines.parts import STIMULI, STIMULI_PATH, suffix
from pipelines.standing_files import replace_file

CARD: Final = "README.md"
MARK: Final = "<!-- Written by Ember at the end of the run. Remove this line, and it is never written again. -->"
SIZES: Final = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"),
                (10_000_000, "1M<n<10M"))  # fmt: skip
"""Size categories of the Hub, by the number of stimuli below which each holds."""
LARGEST: Final = "n>10M"
TABLES: Final = {
    "stimuli": "prompts with their labels, token ids and bytes, one row each",
    "activations": "hidden states, one row for each capture, site, layer, stimulus, step and position",
    "logits": "logits, one row as wide as the vocabulary for each stimulus and position",
    "generations": "continuations and scores, one row for each stimulus",
    "attention": "attention weights of captured positions, one row for each head",
    "experiments": "what experiments found, one line for each finding",
}


def write_card(run_dir: Path, manifest: Manifest, labels: Sequence[str]) -> None:
    """Write the card of a finished run, unless a README.md that is not Ember's stands there.

    Raises RunError for a disk that cannot be written.
    """
    path = run_dir / CARD
    if path.is_symlink() or (path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace")):
        return
    replace_file(run_dir, path, data_card(manifest, labels))


def data_card(manifest: Manifest, labels: Sequence[str]) -> str:
    """Return the card as Markdown with front matter."""
    head = yaml.safe_dump(front_matter(manifest), sort_keys=False, allow_unicode=True)
    parts = [
        _opening(manifest),
        _tables(manifest, labels),
        _captures(manifest.origin.captures),
        _origin(manifest),
        _reading(manifest),
    ]
    return f"---\n{head}---\n{MARK}\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def front_matter(manifest: Manifest) -> dict[str, Any]:
    """Return what the Hub reads: a configuration for each table that has parts, and the size."""
    tables = dict.fromkeys(part.table for part in manifest.parts)
    configs = [
        {"config_name": table, "data_files": _files(table)} | ({"default": True} if table == STIMULI else {})
        for table in sorted(tables, key=_rank)
    ]
    size = next((name for below, name in SIZES if manifest.samples < below), LARGEST)
    return {
        "pretty_name": manifest.origin.name,
        "tags": ["ember", "hidden-states", "interpretability"],
        "size_categories": [size],
        "configs": configs,
    }


def _rank(table: str) -> int:
    names = list(TABLES)
    return names.index(table) if table in names else len(names)


def _files(table: str) -> str:
    return STIMULI_PATH if table == STIMULI else f"{table}/*.{suffix(table)}"


def _opening(manifest: Manifest) -> str:
    model = manifest.origin.model
    failed = len(manifest.failed_samples)
    said = (
        f"{manifest.samples:,} prompts were given to {_named(model)}, and what is listed below was kept of it. "
        "`manifest.json` says where every number came from, `config.yaml` how to make them again."
    )
    if failed:
        said += f"\n\n**{failed:,} of the prompts failed** and have no rows; `failures.jsonl` says why."
    if acted := _acting(manifest):
        said += (
            f"\n\n**The model was changed while it ran** ({acted}): states and texts are those of the changed model."
        )
    return f"# {manifest.origin.name}\n\n{said}"


def _named(model: dict[str, Any]) -> str:
    name = " ".join(str(model.get("name") or "").split()).replace("`", "'")
    shape = f"{model.get('architecture')}, {model.get('n_layers')} layers of width {model.get('hidden_size')}"
    return f"the model `{name}` ({shape})" if name else f"a model without a name ({shape})"


def _acting(manifest: Manifest) -> str:
    hooks = manifest.origin.hooks or {}
    counted = [(len(hooks.get(kind) or ()), kind) for kind in ("interventions", "experiments")]
    return ", ".join(f"{n} {kind if n > 1 else kind[:-1]}" for n, kind in counted if n)


def _tables(manifest: Manifest, labels: Sequence[str]) -> str:
    rows = {part.table: 0 for part in manifest.parts}
    for part in manifest.parts:
        rows[part.table] += part.rows
    lines = [f"| `{name}` | {rows[name]:,} | {TABLES.get(name, '')} |" for name in sorted(rows, key=_rank)]
    told = "\n".join(["## Tables", "", "| table | rows | |", "|---|---|---|", *lines])
    if labels:
        told += "\n\nLabels: " + ", ".join(f"`label_{_safe(name)}`" for name in labels) + "."
    return told


def _safe(text: str) -> str:
    return text.replace("`", "'").replace("|", "\\|").replace("\n", " ")


def _captures(captures: Sequence[CaptureRecord]) -> str:
    if not captures:
        return ""
    lines = [
        f"| `{one.name}` | {one.site} | {_layers(one.layers)} | {_safe(one.position)} | {one.observe} | {one.width:,} |"
        for one in captures
    ]
    head = ["## Captures", "", "| capture | site | layers | position | observed | width |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *lines, "", "Layers count from 0; `observed` is before or after what acted at the site."])


def _layers(layers: tuple[int, ...]) -> str:
    if layers == (NO_LAYER,):
        return "none"
    if len(layers) > 2 and layers == tuple(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]} to {layers[-1]}"
    return ", ".join(map(str, layers))


def _origin(manifest: Manifest) -> str:
    origin, inputs = manifest.origin, manifest.inputs
    rows = {
        "model file, sha256": inputs.model_sha256,
        "stimuli, sha256": inputs.stimuli_sha256,
        "semantic hash of the run": manifest.semantic_hash,
        "route": origin.numerics.get("route"),
        "numerics version": inputs.numerics_version,
        "stored as": origin.dtype,
        "what was shown for such models": origin.validation.get("rung"),
        **_steps(origin.stimuli or {}),
    }
    lines = [f"| {name} | `{_safe(str(value))}` |" for name, value in rows.items() if value is not None]
    return "\n".join(["## Origin", "", "| | |", "|---|---|", *lines])


def _steps(record: dict[str, Any]) -> dict[str, str]:
    """What was done to the stimuli, where anything was."""
    told = {"stimuli from": " ".join(str(record.get("source", {}).get(key, "")) for key in ("kind", "format")).strip()}
    for step in record.get("steps", ()):
        if "before" in step:
            told[f"stimuli after {step['step']}"] = f"{step['after']} of {step['before']}"
    for name, count in record.get("normalize", {}).items():
        told[f"prompts changed by {name}"] = str(count)
    return {name: text for name, text in told.items() if text}


def _reading(manifest: Manifest) -> str:
    layered = next((one for one in manifest.origin.captures if one.layers != (NO_LAYER,)), None)
    lines = ["import pipelines", "", 'run = pipelines.load(".")', "run.stimuli  # an Arrow table"]
    if layered is not None:
        what = f'site="{layered.site}", layer={layered.layers[-1]}, capture="{layered.name}"'
        lines.append(f"X = run.matrix({what})  # [rows, {layered.width}] float32")
    plain = 'Without Ember any Parquet reader does, as `datasets.load_dataset(".", "stimuli")` with this page\'s head.'
    return "\n".join(["## Reading", "", "```python", *lines, "```", "", plain])
