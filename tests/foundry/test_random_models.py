"""Models of random shapes, of every family, against transformers in float64 (needs the extra `reference`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember
from tests.foundry.families import GEMMAS, Tiny, tiny_family
from tests.foundry.families_cases import PLAIN
from tests.foundry.goldens import SITES, Golden, disagreement

MODELS_EACH = 4
BOUND = 5e-5
"""Wider than of recorded cases: shapes are not chosen to be well conditioned; transformers in float32 is 3e-5 off."""
Pick = Callable[..., Any]


def drawn(family: str, seed: int) -> Tiny:
    """Draw a shape: heads and groups that divide, widths that need not be multiples of anything."""
    rng = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    heads, layers = pick(1, 2, 3, 4, 6), int(rng.integers(2, 7))
    groups = [count for count in range(1, heads + 1) if heads % count == 0]
    common = {
        "seed": seed, "n_layers": layers, "d": heads * pick(8, 16), "n_heads": heads, "n_kv": pick(*groups),
        "head_dim": pick(8, 16, 24), "ffn": pick(20, 33, 64), "vocab": pick(300, 301, 333), "tied": pick(False, True),
        "context": 200, "rope_base": pick(1e4, 5e5), "eps": pick(1e-6, 1e-5, 1e-3),
    }  # fmt: skip
    if family in ("llama", "qwen2", "qwen3", "gemma3"):
        common |= {"fused": pick(False, False, True), "linear": pick(None, None, 4.0)}
    if family in GEMMAS:
        common |= windows(pick, rng, layers, flags=family == "gemma4")
    if family == "gemma4":
        common |= of_gemma4(pick, common, groups)
    return Tiny(family, **common)


def windows(pick: Pick, rng: np.random.Generator, layers: int, *, flags: bool) -> dict[str, Any]:
    """Draw a window and which layers have it; transformers wants gemma4's last layer to see everything."""
    pattern = (True, *(bool(flag) for flag in rng.integers(0, 2, layers - 2)), False)
    return {
        "window": pick(1, 2, 5, 16, 31, 32, 33, 64),
        "rope_base_swa": pick(None, 3e4),
        "softcap": pick(None, 5.0, 30.0),
        "sliding": pattern if flags else pick(None, 2, 3, pattern),
    }


def of_gemma4(pick: Pick, common: dict[str, Any], groups: list[int]) -> dict[str, Any]:
    """Draw what only gemma4 has; of both kinds of layers one at least keeps keys of its own."""
    sliding, layers, ffn = common["sliding"], common["n_layers"], common["ffn"]
    shared = pick(*range(layers - sliding.index(False)))
    counts, wide = (pick(*groups), pick(*groups)), pick(1, 2)
    own = layers - shared
    return {
        "head_dim_swa": pick(0, 8, 16),
        "ple": pick(8, 24) if shared else pick(0, 8),
        "shared": shared,
        "decoys": pick(False, True),
        "n_kv": tuple(counts[slides] for slides in sliding),
        "ffn": tuple(ffn if layer < own else wide * ffn for layer in range(layers)),
        "without_v": tuple(layer for layer in range(own) if not sliding[layer] and pick(False, True)),
    }


@pytest.mark.parametrize("seed", range(MODELS_EACH))
@pytest.mark.parametrize("family", PLAIN)
def test_a_random_model_agrees_at_every_site(family: str, seed: int, tmp_path: Path) -> None:
    reference = pytest.importorskip(
        "tests.foundry.families_transformers", reason="transformers (extra `reference`) is not installed"
    )
    tiny = drawn(family, seed)
    path = tiny_family(tmp_path / "m.gguf", tiny)
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(8, 290, length).tolist() for length in (1, 9, 33, 120)]
    prompts.append(prompts[2][:20] + prompts[1])
    exact = reference.Transformers(path)
    states = [exact.states(prompt) for prompt in prompts]
    golden = Golden(prompts, {key: np.stack([state[key] for state in states]) for key in states[0]}, {})
    for route in ("reference", "fast"):
        found = ember.open(path, route=route, threads=1).capture(tokens=prompts, site=list(SITES), layers="all")
        for site, expected in golden.sites().items():
            assert disagreement(found[site], expected).max() < BOUND, (route, site, tiny)
