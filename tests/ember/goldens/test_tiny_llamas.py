"""Tiny llamas of every shape and quantisation against states recorded from llama.cpp; nothing else is needed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ember
from tests.foundry.cases import CONTEXT, TINY_CASES
from tests.foundry.files import tensors_sha256
from tests.foundry.goldens import SITE_OF_KEY, Golden, disagreement
from tests.foundry.llama_float64 import Float64Llama
from tests.foundry.tiny import tiny_llama

Compare = Callable[[ember.Model, Golden], None]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make each case's file once."""
    folder, made = tmp_path_factory.mktemp("tiny"), {}

    def make(case: str) -> Path:
        if case not in made:
            made[case] = tiny_llama(folder / f"{case}.gguf", context=CONTEXT, **TINY_CASES[case])
        return made[case]

    return make


def test_every_case_is_recorded(recorded: Path) -> None:
    assert {path.stem for path in recorded.glob("*.npz")} >= set(TINY_CASES)


@pytest.mark.parametrize("case", TINY_CASES)
def test_the_recording_belongs_to_these_weights(case: str, tiny: Callable[[str], Path], recorded: Path) -> None:
    assert Golden.read(recorded / f"{case}.npz").about["tensors_sha256"] == tensors_sha256(tiny(case))


@pytest.mark.parametrize("case", TINY_CASES)
def test_every_site_agrees_with_llama_cpp(
    case: str, route: str, tiny: Callable[[str], Path], recorded: Path, agrees: Compare
) -> None:
    agrees(ember.open(tiny(case), route=route, threads=1), Golden.read(recorded / f"{case}.npz"))


@pytest.mark.parametrize("case", TINY_CASES)
def test_every_position_agrees_with_float64(case: str, route: str, tiny: Callable[[str], Path], recorded: Path) -> None:
    """Over all rows Ember is no farther from float64 than twice what plain rounding to float32 is."""
    prompts = Golden.read(recorded / f"{case}.npz").prompts
    exact = Float64Llama.read(tiny(case))
    rounded = exact.in_float32()
    captures = ember.open(tiny(case), route=route, threads=1).capture(
        tokens=prompts, site=["after_attention", "after_mlp", "after_layer"], layers="all", position="all"
    )
    states = [(exact.states(prompt), rounded.states(prompt)) for prompt in prompts]
    for key, site in list(SITE_OF_KEY.items())[:3]:
        expected = np.concatenate([truth[key] for truth, _ in states])
        bound = 2 * disagreement(np.concatenate([plain[key] for _, plain in states]), expected).max()
        worst = disagreement(captures[site], expected)
        assert worst.max() < bound < 5e-5, (site, np.unravel_index(worst.argmax(), worst.shape))
