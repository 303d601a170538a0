"""A run's manifest quotes what has been shown for its family, types and route."""

from pathlib import Path

import pipelines
from ember.validation import rung_of
from pipelines.running import run
from tests.faults.rig import make_config, prompts


def test_the_manifest_quotes_the_rung_of_its_types_and_route(tmp_path: Path) -> None:
    items = [{"id": f"s{i}", "prompt": text} for i, text in enumerate(prompts(4))]
    run(make_config(tmp_path, items, hooks={"capture": [{"site": "after_layer"}]}), scheduler="serial")
    origin = pipelines.load(tmp_path / "run").manifest.origin
    shown = rung_of(origin.model["architecture"], origin.model["quant_types"], origin.numerics["route"])
    assert shown.rung == "activation reference"
    assert origin.validation == shown.record()
