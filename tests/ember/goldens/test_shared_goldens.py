"""The goldens that lie beside the repository, of every family, against llama.cpp's f32 x f32 and against float64."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

import ember
from ember.engine.session import Session
from ember.gguf import open_gguf
from ember.models import bind_model
from ember.tolerances import TOLERANCES
from tests.foundry.goldens import SITE_OF_KEY, Golden, disagreement

CASES = (
    "llama-f32",
    "llama-tied-q8_0",
    "llama-q4_k",
    "gpt2-f32",
    "qwen2-f32",
    "qwen3-f32",
    "gemma3-f32",
    "gemma4-e2b-like-f32",
)
BOUND = TOLERANCES["golden_site"].bound


@pytest.mark.parametrize("case", CASES)
def test_every_site_agrees_with_llama_cpp(
    case: str, route: str, shared: Path, agrees: Callable[[ember.Model, Golden], None]
) -> None:
    golden = Golden.read(shared / "goldens" / f"{case}.npz", prefix="ref_")
    agrees(ember.open(shared / "goldens" / f"{case}.gguf", route=route, threads=1), golden)


@pytest.mark.parametrize("case", CASES)
def test_every_site_agrees_with_transformers_in_float64(case: str, route: str, shared: Path) -> None:
    prompts = Golden.read(shared / "goldens" / f"{case}.npz").prompts
    with np.load(shared / "goldens" / f"{case}.hf64.npz") as archive:
        expected = {site: archive[key] for key, site in SITE_OF_KEY.items()}
    model = ember.open(shared / "goldens" / f"{case}.gguf", route=route, threads=1)
    captures = model.capture(tokens=prompts, site=list(expected), layers="all")
    for site, values in expected.items():
        worst = disagreement(captures[site], values)
        assert worst.max() < BOUND, f"{site}: max|d|/rms by prompt (and layer)\n{worst}"


def test_per_layer_inputs_of_gemma4_agree_with_llama_cpp(route: str, shared: Path) -> None:
    """The factors 1/sqrt(d) and 1/sqrt(2) cancel in the next norm: only this input shows them."""
    case = shared / "goldens" / "gemma4-e2b-like-f32.gguf"
    golden = Golden.read(case.with_suffix(".npz"), prefix="ref_")
    file = open_gguf(case)
    bound = bind_model(file)
    session = Session.make(file, route, 1, 1 << 30, threadpoolctl.ThreadpoolController())
    for prompt, expected in zip(golden.prompts, golden.arrays["ple_inp"], strict=True):
        tokens = np.array(prompt, np.int32)
        be, family = session.backend, bound.family
        with session.limits():
            x = family.embed(be, bound.config, bound.weights, tokens, np.arange(len(tokens)))
            made = family.side_inputs(be, bound.config, bound.weights, tokens, x)  # [T, L, P]
        assert disagreement(made[-1], expected).max() < BOUND, len(prompt)
