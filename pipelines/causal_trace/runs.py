"""The two runs of a causal trace as configurations: prompts as they are, and one patch for each place."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pipelines.causal_trace.config import PairConfig, TraceConfig
from pipelines.causal_trace.pairs import CLEAN, CORRUPT, Pair, Place, stimulus_id
from pipelines.config import RunConfig
from pipelines.config.models import SCHEMA

BASELINE: Final = "baseline"
PATCHED: Final = "patched"
PATCHES: Final = "patches.jsonl"
"""The stimuli of the second run."""
CONTROL: Final = "control"
"""The patch of a pair that puts the inputs of all layers back at all positions: it must give what the clean prompt
gives."""
CONTROL_SITE: Final = "before_layer"
LABELS: Final = ("pair", "patch", "clean", "layer", "position")


def baseline_config(trace: TraceConfig, pairs: Sequence[PairConfig]) -> RunConfig:
    """Return the run of all clean and corrupt prompts: captures at all positions, the clean answer scored for both."""
    items = [
        {
            "id": stimulus_id(pair.pair, side),
            "prompt": getattr(pair, side),
            "expected": pair.expected,
            "labels": {"pair": pair.pair, "side": side, "group": pair.group},
        }
        for pair in pairs
        for side in (CLEAN, CORRUPT)
    ]
    layers = trace.model_dump(mode="json")["layers"]
    captures = [{"site": site, "layers": layers, "position": "all"} for site in trace.sites]
    control = {"name": CONTROL, "site": CONTROL_SITE, "position": "all", "where": {"side": CLEAN}}
    return _config(trace, BASELINE, {"items": items, "allow_leaks": True}, {"capture": [*captures, control]})


def patched_config(trace: TraceConfig, pairs: Sequence[Pair]) -> RunConfig:
    """Return the run of one corrupt prompt for each pair, site, layer and place, with that state put back.

    And one for each pair, site and layer with all states of the layer put back.
    """
    file = str((trace.output.path / PATCHES).resolve())
    stimuli = {"file": file, "columns": {"labels": list(LABELS)}, "allow_leaks": True}
    return _config(trace, PATCHED, stimuli, {"intervene": [*_interventions(trace, pairs)]})


def _config(trace: TraceConfig, which: str, stimuli: dict[str, Any], hooks: dict[str, Any]) -> RunConfig:
    shared = trace.model_dump(
        mode="json", by_alias=True, exclude_none=True, include={"model", "tokenizer", "engine", "run", "guard"}
    )
    own = {
        "schema": SCHEMA,
        "name": f"{trace.name}-{which}",
        "stimuli": stimuli,
        "hooks": hooks,
        "score": {"expected": True},
        "output": {"dir": str(trace.output.path / which)},
    }
    return RunConfig.model_validate(shared | own)


def _interventions(trace: TraceConfig, pairs: Sequence[Pair]) -> Iterator[dict[str, Any]]:
    source = {"run": str((trace.output.path / BASELINE).resolve()), "stimulus": "{clean}"}
    equal = any(pair.equal_length for pair in pairs)
    # Where lengths differ a place has two numbers: one counted from the end serves for both prompts.
    backs = sorted({place.from_end for pair in pairs if not pair.equal_length for place in pair.places})
    for site in trace.sites:
        base = {"operation": "restore", "site": site, "layers": ["{layer}"]}
        origin = source | {"capture": site}
        if equal:
            yield base | {"position": "{position}", "source": origin, "where": {"patch": site}}
        for back in backs:
            place = {"position": {"from_end": back}}
            yield base | place | {"source": origin | place, "where": {"patch": _from_end(site, back)}}
    if equal:
        yield {
            "operation": "restore",
            "site": CONTROL_SITE,
            "layers": "all",
            "position": "all",
            "source": source | {"capture": CONTROL},
            "where": {"patch": CONTROL},
        }


def _from_end(site: str, back: int) -> str:
    return f"{site} {back} from the end"


def patch_id(pair: str, site: str, layer: int, place: Place) -> str:
    """Id of a patch in the second run."""
    return f"{pair}/{site}/{layer}/{place.label}"


def control_id(pair: str) -> str:
    """Id of a pair's control in the second run."""
    return f"{pair}/{CONTROL}"


def patch_lines(trace: TraceConfig, pairs: Sequence[Pair], layers: Sequence[int]) -> Iterator[str]:
    """Stimuli of the second run, a line of JSON each."""
    for pair in pairs:
        for site in trace.sites:
            for layer in layers:
                for place in pair.patches:
                    patch = site if pair.equal_length else _from_end(site, place.from_end)
                    yield _line(pair, patch_id(pair.name, site, layer, place), patch, str(layer), place.label)
        if pair.equal_length:
            yield _line(pair, control_id(pair.name), CONTROL, "all", "all")


def _line(pair: Pair, name: str, patch: str, layer: str, position: str) -> str:
    labels = (pair.name, patch, stimulus_id(pair.name, CLEAN), layer, position)
    told = {"id": name, "prompt": pair.config.corrupt, "expected": pair.config.expected}
    return json.dumps(told | dict(zip(LABELS, labels, strict=True)), ensure_ascii=False) + "\n"
