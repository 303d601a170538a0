"""What a plan says of its hooks: captures, interventions, experiments, and how deep the model is run."""

import json
from typing import Any

from pipelines.finish import position_text
from pipelines.plan import Plan


def hooks_record(plan: Plan) -> dict[str, Any]:
    """Return the hook plan as plain data."""
    acting = plan.hooks.record(plan.config.hooks) or {"interventions": [], "experiments": []}
    return {
        "captures": [
            {
                "name": planned.name,
                "site": planned.site,
                "layers": list(planned.layers),
                "position": position_text(wanted.position),
                "observe": planned.observe,
                "where": {name: list(values) for name, values in wanted.where},
                "rows": planned.n_rows,
            }
            for planned, wanted in zip(plan.captures, plan.config.hooks.capture, strict=True)
        ],
        "attention": [
            {
                "name": planned.name,
                "layers": list(planned.layers),
                "position": position_text(wanted.position),
                "where": {name: list(values) for name, values in wanted.where},
                "positions": len(planned.positions.values),
            }
            for planned, wanted in zip(plan.hooks.attention, plan.config.hooks.attention, strict=True)
        ],
        **acting,
        "layers_run": plan.layers_run,
        "stop_after": plan.layers_run - 1,
        "guarded": plan.config.guard.positions > 0,
        "hooks_sha256": plan.hooks.sha256,
    }


def hooks_lines(told: dict[str, Any]) -> list[str]:
    """Say in words what `plan_record` gave of hooks."""
    deep, n_layers = told["layers_run"], told["model"]["n_layers"]
    acts = told["interventions"] or told["experiments"]
    return [
        *(_capture_line(one, observed=bool(acts)) for one in told["captures"]),
        *(_attention_line(one) for one in told["attention"]),
        *(_intervention_line(one) for one in told["interventions"]),
        *(f"run code  {one['use']}: {_count(one['samples'])}{_where(one)}" for one in told["experiments"]),
        *([_depth_line(deep, n_layers, guarded=told["guarded"])] if deep < n_layers else []),
    ]


def _depth_line(deep: int, n_layers: int, *, guarded: bool) -> str:
    first = "; in the first unit all, for the smoke guard" if guarded else ""
    return f"layers    {deep} of {n_layers} run: nothing is asked of deeper ones{first}"


def _capture_line(one: dict[str, Any], *, observed: bool) -> str:
    when = f", {one['observe']} what acts there" if observed else ""
    at = f"{one['site']}, {layers_text(one['layers'])}, position {one['position']}"
    return f"capture   {one['name']}: {at}, {one['rows']:,} rows{when}{_where(one)}"


def _attention_line(one: dict[str, Any]) -> str:
    at = f"{layers_text(one['layers'])}, position {one['position']}, {one['positions']:,} queries of every head"
    return f"attention {one['name']}: {at}{_where(one)}"


def _intervention_line(one: dict[str, Any]) -> str:
    layers = f", layers {_written(one['layers'])}" if "layers" in one else ""
    strength = "" if one["strength"] == 1 else f" by {one['strength']:g}"
    at = f"{one['site']}{layers}, position {_written(one['position'])}"
    return f"intervene {one['operation']}{strength} at {at}: {_count(one['samples'])}{_where(one)}"


def _count(samples: int) -> str:
    return f"{samples:,} prompt" + "s" * (samples != 1)


def _where(one: dict[str, Any]) -> str:
    return f", where {_written(one['where'])}" if one.get("where") else ""


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def layers_text(layers: list[int]) -> str:
    """Say which layers in a few words."""
    if layers == [-1]:
        return "no layer"
    if len(layers) > 2 and layers == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
