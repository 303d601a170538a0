"""A comparison for machines (a record) and for people (a table per layer)."""

import datetime
from typing import Any, Final

import ember
from ember.model import Model
from ember.sites import NO_LAYER, SITES
from ember.tolerances import ROW_METRIC
from ember.validation.compare import Comparison
from ember.validation.recording import Recording

SCHEMA: Final = "ember-validation/1"
_WIDTH: Final = 16


def make_record(model: Model, recording: Recording, found: Comparison, *, named: str) -> dict[str, Any]:
    """Return everything that a comparison says, as plain data. `named` is what the caller calls the model."""
    card = model.card
    return {
        "schema": SCHEMA,
        "ember": ember.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "model": {
            "path": named,
            "name": model.file.path.stem,
            "sha256": model.file.sha256(),
            "architecture": card.architecture,
            "n_layers": card.n_layers,
            "hidden_size": card.hidden_size,
            "quant_types": dict(card.quant_types),
        },
        "route": model.route,
        "numerics": model.numerics(),
        "reference": dict(recording.about),
        "prompts": list(found.lengths),
        "tolerance": {"metric": ROW_METRIC, "bounds": {site: list(bounds) for site, bounds in found.bounds.items()}},
        "figures": [{name: getattr(one, name) for name in one.__slots__} for one in found.figures],
        "top1": _tally(found.top1),
        "greedy": None if found.greedy is None else _tally(found.greedy),
        "agrees": found.agrees,
        "problems": found.problems(),
        "rung": found.rung,
    }


def _tally(tally: Any) -> dict[str, int]:
    return {name: getattr(tally, name) for name in tally.__slots__}


def table(found: Comparison) -> list[str]:
    """Return lines: per layer the worst max|d|/rms of each site, the least cosine, and `!` where a bound is broken."""
    by_place = {(one.layer, one.site): one for one in found.figures}
    sites = [site for site in found.sites if SITES[site].per_layer]
    layers = sorted({layer for layer, _ in by_place if layer != NO_LAYER})
    lines = [f"max|d|/rms by layer, worst of {len(found.lengths)} prompts of {_lengths(found.lengths)} tokens"]
    if layers:
        lines.append("layer" + "".join(f"{site:>{_WIDTH}}" for site in sites) + "    least cosine")
    for layer in layers:
        row = [by_place[layer, site] for site in sites]
        cells = "".join(f"{f'{one.worst:.2e}' + ('' if one.agrees else ' !'):>{_WIDTH}}" for one in row)
        lines.append(f"{layer:5}{cells}    {min(one.cosine for one in row):.9f}")
    for one in found.figures:
        if one.layer == NO_LAYER:
            broken = "" if one.agrees else " !"
            lines.append(f"{one.site}: {one.worst:.2e}{broken}, least cosine {one.cosine:.9f}")
    return lines


def verdict(recording: Recording, found: Comparison) -> list[str]:
    """Return lines: choices in common, and whether all is within the tolerance."""
    about = recording.about
    reference = " ".join(str(about[key]) for key in ("name", "version") if key in about)
    greedy = "not recorded" if found.greedy is None else str(found.greedy)
    lines = [f"highest logit the same: {found.top1}; greedy ids the same: {greedy}", f"reference: {reference}"]
    if "settings" in about:
        lines.append(f"  {about['settings']}")
    bound = ", ".join(f"{site} {_range(bounds)}" for site, bounds in found.bounds.items())
    if found.agrees:
        return [*lines, f"agrees, so reaches the rung {found.rung!r}; bounds: {bound}"]
    return [*lines, f"does NOT agree; bounds: {bound}", *(f"  {problem}" for problem in found.problems()[:10])]


def _range(bounds: tuple[float, ...]) -> str:
    least, most = f"{min(bounds):.1e}", f"{max(bounds):.1e}"
    return least if least == most else f"{least} to {most}"


def _lengths(lengths: tuple[int, ...]) -> str:
    return ", ".join(map(str, sorted(lengths)))
