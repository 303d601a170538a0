"""Runs with hooks on the built-in model, and comparing their bits.

The prompts have nothing in common but the token at their start, so that acting behind it changes nobody's company: a
run that puts back what it changed has the bits of the one that changed nothing, whatever the BLAS.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

import pipelines
from pipelines.config import load_config
from pipelines.running import run

PROMPTS = {
    "a": "الجذر كتب على وزن فاعل:",
    "b": "درس الطالب",
    "c": "اسم الفاعل من الجذر علم:",
    "d": "ماضي التفعيل من الجذر فتح:",
    "e": "كتب الدرس على الباب",
    "f": "علم من كتب",
}
LABELS = {
    name: {"kind": "clean" if i % 2 else "corrupt", "layer": str(i % 5), "at": str(1 + i % 3)}
    for i, name in enumerate(PROMPTS)
}
CAPTURE = [
    {"site": "after_layer", "position": "all", "observe": "after"},
    {"name": "mlp", "site": "after_mlp", "layers": [0, -1], "position": "all", "observe": "after"},
    {
        "name": "steps",
        "site": "after_layer",
        "layers": {"from": 1, "to": 2},
        "position": "generated",
        "observe": "after",
    },
    {"name": "logits", "site": "after_logits", "observe": "after"},
]
ZERO = {"operation": "zero", "site": "after_layer", "layers": "{layer}", "position": {"index": "{at}"}}


def make(folder: Path, name: str, hooks: dict[str, Any], prompts: dict[str, str] = PROMPTS, **changes: Any) -> Path:
    """Run a config over the prompts and return its directory."""
    items = [{"id": key, "prompt": prompt, "labels": LABELS[key]} for key, prompt in prompts.items()]
    config = {
        "schema": "ember.pipeline/v1",
        "name": name,
        "model": {"path": "builtin:sarf-nano"},
        "stimuli": {"items": items, "allow_leaks": True},
        "hooks": {"capture": CAPTURE} | hooks,
        "generate": {"max_tokens": 6},
        "engine": {"unit_rows": 24},
        "output": {"dir": str(folder / name)},
    } | changes
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    run(load_config(path), scheduler="serial")
    return folder / name


def same(one: Path, other: Path) -> dict[tuple[str, int], bool]:
    """For each capture and layer, whether two runs have the same bits."""
    a, b = pipelines.load(one), pipelines.load(other)
    found = {}
    for capture in a.captures:
        for layer in capture.layers:
            where: dict[str, Any] = {"site": capture.site, "capture": capture.name, "step": None}
            where |= {} if layer < 0 else {"layer": layer}
            found[capture.name, layer] = bool(np.array_equal(a.matrix(**where), b.matrix(**where)))
    return found


SHARING = {
    name: f"الجذر {root} على وزن فاعل:"
    for name, root in zip("abcdef", ("كتب", "درس", "علم", "فتح", "جمع", "كتم"), strict=True)
}
"""Prompts with much in common: there equal bits need a BLAS whose rows do not depend on their company."""


def restore(folder: Path, prompts: dict[str, str]) -> dict[str, bool]:
    """Run a baseline, a changed run and one that restores it: whether the last two have the bits of the first."""
    baseline = make(folder, "baseline", {}, prompts)
    put_back = ZERO | {"operation": "restore", "source": {"run": str(baseline), "capture": "after_layer"}}
    runs = {"changed": [ZERO], "restored": [ZERO, put_back]}
    return {
        name: all(same(baseline, make(folder, name, {"intervene": acts}, prompts)).values())
        for name, acts in runs.items()
    }
