"""Keeps what has been shown: adds records of `ember validate` to the data, and writes docs/validation.md from it.

    python -m ember.validation.page [RECORD.json …]

A record takes the place of an older one of the same model, route and reference. Comparisons that failed are not added.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ember.errors import EmberError, InputError
from ember.sites import SITES
from ember.tolerances import TOLERANCES
from ember.validation.ladder import RUNGS
from ember.validation.report import SCHEMA
from ember.validation.rungs import DATA, PLAIN, entries, rung_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "validation.md"
ROUTES: Final = ("reference", "fast")
INTRODUCTION: Final = """\
<!-- Written by `python -m ember.validation.page` from ember/validation/rungs.json: do not edit. -->

# Validation

Every figure here was measured by `ember validate MODEL` or by the same code on recorded values, which compares Ember
with a reference at every site of every layer, at the last token of each prompt, and continues each prompt greedily.
`max|d|/rms` is the largest difference in a row of states, over the root mean square of the reference's row.

Do it for your own file: `pip install 'ember[reference]'`, then `ember validate model.gguf` (llama.cpp),
`ember validate model.gguf --against transformers`, or `--against recorded.npz`. The exit status is 1 if anything is out
of bounds; `--out record.json` keeps the comparison.

## What the references are

- **llama.cpp** through llama-cpp-python's evaluation callback, F32 KV cache, no flash attention, one thread. It rounds
  activations beside weights that are not F32 (1e-1 on states of Q8_0 and Q4_K files), so it is given a temporary copy
  of the file decoded to F32; the decoders themselves are held to gguf-py's bits elsewhere. Two of its operators are too
  coarse to tell mistakes from rounding and are replaced in its graph, from their own inputs and parameters, by float64:
  GELU, which it reads from a table of half-precision numbers (on Gemma 3 270M contributions move by 4e-2), and RoPE,
  whose angles it forms in float32 (7e-4 at position 275 of the same model).
- **transformers** in float64 throughout, built from the file's keys and tensors; not its own GGUF loader, which ignores
  frequency factors and Gemma's scaling. Files of the llama family with `rope_freqs.weight` are refused there.
- **Recorded values** (`.npz`) in the layout of the goldens, made by either.

## The ladder

"""


def page() -> str:
    """Return the text of docs/validation.md."""
    found = sorted(entries(), key=_order)
    real = [entry for entry in found if entry["model"]["hidden_size"] > 256]
    tiny = [entry for entry in found if entry["model"]["hidden_size"] <= 256]
    parts = [
        INTRODUCTION + "\n".join(_ladder()),
        "## Rung of each family, type and route\n\nA file is as well shown as its least shown type.\n\n"
        + "\n".join(_summary(found)),
        "## Tolerances\n\nPrompts of more than 100 tokens are allowed 4e-8 a token beyond these where the reference's "
        "RoPE angles are float32 (recordings of stock llama.cpp).\n\n" + "\n".join(_tolerances()),
        "## Real models\n\n" + "\n".join(_details(real)),
        *(_by_layer(entry) for entry in real if (entry["route"], entry["reference"]["name"]) == ("fast", "llama.cpp")),
        "## Tiny models\n\nThe goldens of this project and of its test foundry, with random weights "
        "(`python -m tests.foundry.measure_rungs`), and the model that ships with Ember.\n\n"
        + "\n".join(_details(tiny)),
    ]
    return "\n\n".join(parts) + "\n"


def _order(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return entry["architecture"], entry["model"]["name"], entry["reference"]["name"], entry["route"]


def _ladder() -> list[str]:
    rows = [f"| {rung} | {claim} |" for rung, claim in RUNGS.items()]
    return ["| rung | claim |", "|---|---|", *rows, "", "No probes or interventions have been compared yet."]


def _summary(found: Sequence[Mapping[str, Any]]) -> list[str]:
    types: dict[str, set[str]] = {}
    for entry in found:
        types.setdefault(entry["architecture"], set()).update(entry["quant_types"])
    lines = ["| family | types | " + " | ".join(ROUTES) + " |", "|---|---|---|---|"]
    for family, known in types.items():
        by_rungs: dict[tuple[str, ...], list[str]] = {}
        for kind in sorted(known):
            by_rungs.setdefault(tuple(rung_of(family, [kind], route).rung for route in ROUTES), []).append(kind)
        lines += [f"| {family} | {', '.join(kinds)} | {' | '.join(rungs)} |" for rungs, kinds in by_rungs.items()]
    return lines


def _tolerances() -> list[str]:
    metrics = {name: one.metric.replace("|", "\\|") for name, one in TOLERANCES.items()}
    rows = [f"| {name} | {metrics[name]} | {one.bound:.0e} | {one.reason} |" for name, one in TOLERANCES.items()]
    return ["| tolerance | metric | bound | reason |", "|---|---|---|---|", *rows]


def _details(found: Iterable[Mapping[str, Any]]) -> list[str]:
    head = ["family", "model", "types", "route", "reference", "prompts", *SITES, "top-1", "greedy", "date"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for entry in found:
        worst = [f"{entry['worst'][site]:.1e}" if site in entry["worst"] else "-" for site in SITES]
        types = ", ".join(kind for kind in entry["quant_types"] if kind != PLAIN or len(entry["quant_types"]) == 1)
        reference = " ".join(filter(None, (entry["reference"]["name"], entry["reference"].get("version"))))
        cells = [
            entry["architecture"], entry["model"]["name"], types, entry["route"], reference,
            ", ".join(map(str, sorted(entry["prompts"]))), *worst, entry["top1"], entry["greedy"] or "-", entry["date"],
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _by_layer(entry: Mapping[str, Any]) -> str:
    sites = [site for site in SITES if SITES[site].per_layer]
    lines = [
        f"### {entry['model']['name']}, layer by layer ({entry['route']}, against {entry['reference']['name']})",
        "",
        f"`{entry['model']['sha256']}`; least cosine of any row {entry['cosine']:.10f}.",
        "",
        f"| layer | {' | '.join(sites)} |",
        "|" + "---|" * (1 + len(sites)),
    ]
    lines += [
        f"| {layer} | {' | '.join(f'{value:.1e}' for value in row)} |" for layer, row in enumerate(entry["by_layer"])
    ]
    return "\n".join(lines)


def entry_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the data keeps of a record of `ember validate`. Raises InputError for a failed comparison."""
    if record.get("schema") != SCHEMA:
        raise InputError(f"schema {record.get('schema')!r}; expected a record of `ember validate --out`, {SCHEMA}")
    if record["rung"] is None:
        raise InputError(f"the comparison of {record['model']['path']} failed; only what has been shown is kept")
    figures = record["figures"]
    worst: dict[str, float] = {}
    for one in figures:
        worst[one["site"]] = max(worst.get(one["site"], 0.0), one["worst"])
    model = record["model"]
    entry = {
        "architecture": model["architecture"],
        "quant_types": sorted(model["quant_types"]),
        "route": record["route"],
        "rung": record["rung"],
        "model": {key: model[key] for key in ("name", "sha256", "n_layers", "hidden_size")},
        "reference": {key: record["reference"][key] for key in ("name", "version") if key in record["reference"]},
        "date": record["date"],
        "ember": record["ember"],
        "prompts": record["prompts"],
        "worst": {site: _short(value) for site, value in worst.items()},
        "cosine": min(one["cosine"] for one in figures),
        "top1": _share(record["top1"]),
        "greedy": _share(record["greedy"]),
    }
    if model["hidden_size"] > 256:
        at = {(one["layer"], one["site"]): _short(one["worst"]) for one in figures}
        sites = [site for site in SITES if SITES[site].per_layer and (0, site) in at]
        entry["by_layer"] = [[at[layer, site] for site in sites] for layer in range(model["n_layers"])]
    return entry


def _short(value: float) -> float:
    return float(f"{value:.2e}")


def _share(tally: Mapping[str, int] | None) -> str | None:
    if tally is None:
        return None
    close = f" ({tally['too_close']} too close to call)" if tally["too_close"] else ""
    return f"{tally['same']}/{tally['total']}{close}"


def merged(known: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return all entries, newer ones in the place of older ones, in the order of the page."""
    by_key = {_key(entry): entry for entry in [*known, *new]}
    return sorted(by_key.values(), key=_order)


def _key(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return entry["model"]["sha256"], entry["route"], entry["reference"]["name"]


def _main(paths: Sequence[str]) -> None:
    new = []
    for path in paths:
        try:
            new.append(entry_of(json.loads(Path(path).read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, EmberError) as error:
            sys.exit(f"error: {path}: {error}")
    if new:
        lines = [json.dumps(entry, ensure_ascii=False) for entry in merged(entries(), new)]
        DATA.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
        entries.cache_clear()
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
