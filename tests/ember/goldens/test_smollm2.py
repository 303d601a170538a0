"""SmolLM2-135M (Q4_1) at every layer against llama.cpp's states of its F32 copy: prompts of 1, 20 and 582 tokens."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ember
from ember.tolerances import TOLERANCES
from tests.foundry.files import tensors_sha256
from tests.foundry.goldens import Golden, disagreement

pytestmark = [pytest.mark.realmodel, pytest.mark.slow]


@pytest.fixture(scope="module")
def golden(recorded: Path) -> Golden:
    return Golden.read(recorded / "smollm2-135m-q4_1.npz")


@pytest.fixture(scope="module")
def recorded_model(smollm2: Path, golden: Golden) -> Path:
    if tensors_sha256(smollm2) != golden.about["tensors_sha256"]:
        pytest.skip(f"{smollm2} holds other weights than the recording")
    return smollm2


@pytest.fixture
def model(recorded_model: Path, route: str) -> ember.Model:
    return ember.open(recorded_model, route=route)


def test_prompts_are_those_that_the_recording_names(smollm2: Path, golden: Golden) -> None:
    assert [len(prompt) for prompt in golden.prompts] == [1, 20, 582]
    tokenizer = ember.load_tokenizer(smollm2)
    assert [tokenizer.encode(text).ids for text in golden.about["texts"].values()] == golden.prompts


def test_every_layer_agrees_with_llama_cpp(model: ember.Model, golden: Golden) -> None:
    bound = TOLERANCES["real_model_layer"].bound
    captures = model.capture(tokens=golden.prompts, site=["after_layer", "before_logits"], layers="all")
    for site, key in (("after_layer", "l_out"), ("before_logits", "result_norm")):
        worst = disagreement(captures[site], golden.arrays[key])
        assert worst.max() < bound, f"{site}: max|d|/rms by prompt (and layer)\n{worst}"


def test_contributions_agree_with_llama_cpp(model: ember.Model, golden: Golden) -> None:
    bound = TOLERANCES["real_model_layer"].bound
    captures = model.capture(tokens=[golden.prompts[1]], site=["after_attention", "after_mlp"], layers="all")
    for site, key in (("after_attention", "attn_contrib_1"), ("after_mlp", "mlp_contrib_1")):
        worst = disagreement(captures[site][0], golden.arrays[key])
        assert worst.max() < bound, f"{site}: max|d|/rms by layer\n{worst}"


def test_logits_and_greedy_ids_agree_with_llama_cpp(
    model: ember.Model, golden: Golden, same_continuations: Callable[[ember.Model, Golden], None]
) -> None:
    logits = model.logits(tokens=golden.prompts)
    ours = np.take_along_axis(logits, golden.arrays["top_ids"], axis=-1)
    worst = np.abs(ours - golden.arrays["top_logits"]).max(-1) / golden.arrays["logits_rms"]
    assert worst.max() < TOLERANCES["real_model_layer"].bound, f"max|d|/rms by prompt: {worst}"
    same_continuations(model, golden)
