"""The manifest of a sweep: what was probed, of which run, what was refused, which files hold the results."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ember import __version__
from pipelines import placing
from pipelines.errors import RunError
from pipelines.probes.config import NETWORK, split_name
from pipelines.probes.hidden import SETTINGS
from pipelines.probes.multiplicity import FEWEST
from pipelines.probes.problems import Problem
from pipelines.probes.results import Result
from pipelines.probes.settle import VERSION, Sweep
from pipelines.probes.tasks import FEATURES, Arrays, Source, is_text

MANIFEST: Final = "manifest.json"
SCHEMA_VERSION: Final = "ember.probe-results/v2"
CORRECTION: Final = (
    "above_controls_corrected: simultaneous 99 % intervals over all probes, captures and layers of a label and split, "
    "by the single-step max-t of Westfall and Young (1993) from the same draws of groups, with Student's tail; of "
    f"fewer than {FEWEST} groups nothing is said"
)


def read_manifest(out: Path) -> dict[str, Any]:
    """Read the manifest of a finished sweep; raises RunError for one that is none."""
    path = out / MANIFEST
    try:
        found = json.loads(path.read_bytes())
        assert isinstance(found["files"], list), "a manifest lists files"
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise RunError(f"{path} is no manifest of a sweep ({error}); remove the folder and probe again") from error
    manifest: dict[str, Any] = found
    return manifest


def damaged(out: Path, manifest: dict[str, Any]) -> list[str]:
    """Files of a sweep that are absent or not as its manifest says."""
    return [
        one["path"]
        for one in manifest["files"]
        if not (out / one["path"]).is_file() or placing.sha256_file(out / one["path"]) != one["sha256"]
    ]


def make_manifest(
    sweep: Sweep,
    found: Mapping[Source, Arrays],
    results: Sequence[Result],
    files: Sequence[dict[str, Any]],
    weights: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Describe a sweep by what tasks found, its results, files and the records of its directions, as plain data."""
    run = sweep.run.manifest
    return {
        "schema_version": SCHEMA_VERSION,
        "name": sweep.config.name,
        "plan": sweep.plan,
        "plan_sha256": sweep.plan_sha256,
        "run": {
            "name": run.origin.name,
            "semantic_hash": run.semantic_hash,
            "input_hash": run.input_hash,
            "samples": run.samples,
            "failed_samples": len(run.failed_samples),
        },
        "stimuli": len(sweep.stimuli.samples),
        "problems": [_told(one) for one in sweep.problems],
        "refusals": [{"label": one.label, "split": one.split, "reason": one.reason} for one in sweep.refusals],
        "texts": [_text(source, arrays) for source, arrays in found.items() if is_text(source)],
        "highlights": _highlights(results),
        "untrained_baseline": _untrained(sweep),
        "correction": CORRECTION,
        **({"mlp": SETTINGS} if NETWORK in sweep.config.probes else {}),
        "versions": {"ember": __version__, "numpy": np.__version__, "probes": VERSION},
        "files": list(files),
        "weights": list(weights),
    }


def _untrained(sweep: Sweep) -> str:
    if sweep.untrained is None:
        return "not measured: no run of an untrained copy was given"
    manifest = sweep.untrained.manifest
    marked = "ember.untrained.seed" in manifest.origin.model.get("unread_keys", ())
    said = "a copy with shuffled weights" if marked else "a model that does not say that it is untrained"
    return f"measured: {manifest.origin.name}, {said}, semantic hash {manifest.semantic_hash}"


def _told(problem: Problem) -> dict[str, Any]:
    return {
        "label": problem.label,
        "split": split_name(problem.split),
        "rows": len(problem.task.rows),
        "classes": list(problem.classes),
        "test_sets": len(problem.task.folds.keys),
        "revealed": problem.revealed,
    }


def _text(source: Source, arrays: Arrays) -> dict[str, Any]:
    """A baseline: whose it is (no capture: of all at the last token), and how many of its features were kept."""
    kept, found = arrays[FEATURES].tolist()
    named = {"features": source.features, "capture": source.capture, "position": source.position}
    return named | {"kept": kept, "found": found}


def _corrected(one: Result) -> list[float] | None:
    """Margin and simultaneous interval; None where groups are too few for one."""
    found = [one.margin_corrected.value, one.margin_corrected.low, one.margin_corrected.high]
    return found if all(map(math.isfinite, found)) else None


def _highlights(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The best layer of each label, split, probe and capture."""
    best: dict[tuple[str, ...], Result] = {}
    for one in results:
        key = (one.label, one.split, one.source.capture, one.source.site, one.probe)
        if one.features == "states" and (key not in best or one.accuracy.value > best[key].accuracy.value):
            best[key] = one
    return [
        {
            "label": one.label,
            "split": one.split,
            "probe": one.probe,
            "capture": one.source.capture,
            "site": one.source.site,
            "layer": one.source.layer,
            "accuracy": [one.accuracy.value, one.accuracy.low, one.accuracy.high],
            "controls": {
                "random_labels": one.control_accuracy,
                "majority": one.majority_accuracy,
                "characters": one.characters_accuracy,
                "tokens": one.tokens_accuracy,
                **({} if math.isnan(one.untrained_accuracy) else {"untrained": one.untrained_accuracy}),
            },
            "margin": [one.margin.value, one.margin.low, one.margin.high],
            "above_controls": one.above_controls,
            "margin_corrected": _corrected(one),
            "above_controls_corrected": one.above_controls_corrected,
            "family": one.family,
            "enough_groups": one.enough_groups,
        }
        for one in best.values()
    ]
