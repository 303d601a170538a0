"""Patching on SmolLM2: what is put back, and a prompt overwritten with another one's states, give the same bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from ember.errors import EmberError
from pipelines.running import run
from tests.faults.rig import make_config

PAIRS = {
    "france": ("The capital of France is", "The capital of Italy is"),
    "cats": ("My cat sleeps on the", "My dog sleeps on the"),
}
CAPTURE = [
    {"name": "all", "site": "before_layer", "layers": [0, 12, 29], "position": "all", "observe": "after"},
    {"name": "attention", "site": "after_attention", "layers": [7], "position": "all", "observe": "before"},
    {"site": "after_logits", "observe": "after"},
]


def make(folder: Path, model: Path, name: str, texts: dict[str, str], acts: list[dict[str, Any]]) -> pipelines.Run:
    config = make_config(
        folder,
        [],
        name,
        model={"path": str(model)},
        stimuli={"items": [{"id": key, "prompt": text} for key, text in texts.items()]},
        hooks={"capture": CAPTURE, "intervene": acts},
        engine={},
        generate={"max_tokens": 2},
    )
    assert run(config, scheduler="serial").status == "complete"
    return pipelines.load(folder / name, verify=True)


def same_bits(one: pipelines.Run, other: pipelines.Run) -> bool:
    places = [(c.name, c.site, layer) for c in one.captures for layer in c.layers]
    pairs = [
        [found.matrix(capture=name, site=site, layer=None if layer < 0 else layer) for found in (one, other)]
        for name, site, layer in places
    ]
    tokens = [found.generations["token_ids"].to_pylist() for found in (one, other)]
    return all(np.array_equal(a, b) for a, b in pairs) and tokens[0] == tokens[1]


@pytest.mark.realmodel
def test_states_put_back_are_the_baseline(tmp_path: Path, smollm2: Path) -> None:
    clean = {name: pair[0] for name, pair in PAIRS.items()}
    corrupt = {name: pair[1] for name, pair in PAIRS.items()}
    baseline = make(tmp_path, smollm2, "clean", clean, [])
    zero = {"operation": "zero", "site": "after_attention", "layers": [7], "position": {"index": 2}}
    changed = make(tmp_path, smollm2, "changed", clean, [zero])
    assert not same_bits(baseline, changed)
    source = {"run": str(tmp_path / "clean")}
    restored = make(tmp_path, smollm2, "restored", clean, [zero, zero | {"operation": "restore", "source": source}])
    assert same_bits(baseline, restored)

    # every state that enters the first layer, from another prompt of as many tokens
    over = {"operation": "replace", "site": "before_layer", "layers": [0], "position": "all", "source": source}
    assert not same_bits(baseline, make(tmp_path, smollm2, "corrupt", corrupt, []))
    assert same_bits(baseline, make(tmp_path, smollm2, "overwritten", corrupt, [over]))

    part = next((tmp_path / "clean/activations").iterdir())
    body = bytearray(part.read_bytes())
    body[len(body) // 2] ^= 1
    part.write_bytes(bytes(body))
    with pytest.raises(EmberError, match=rf"as a source of rows, .*\n  activations/{part.name}: its sha256 is"):
        make(tmp_path, smollm2, "tampered", corrupt, [over])
