"""Tiny models of every family against recorded values of float64 and of llama.cpp; nothing else is needed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ember
from ember.tolerances import TOLERANCES
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import FAMILY_CASES
from tests.foundry.files import tensors_sha256
from tests.foundry.goldens import SITES, Golden, allowance, disagreement, first_break

WITH_GELU = ("gpt2", "gemma3", "gemma4")
Make = Callable[[str], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Make each case's file once."""
    folder, files = tmp_path_factory.mktemp("families"), {}

    def make(name: str) -> Path:
        if name not in files:
            case = FAMILY_CASES[name]
            files[name] = tiny_family(folder / f"{name}.gguf", case.tiny, metadata=case.metadata)
        return files[name]

    return make


@pytest.fixture(scope="module")
def golden_of(recorded: Path) -> Callable[[str], Golden]:
    return lambda name: Golden.read(recorded / f"family-{name}.npz")


def bound_of_llama_cpp(family: str, length: int) -> float:
    """How far Ember may be from llama.cpp: as far as llama.cpp is from the formulas."""
    if family in WITH_GELU:
        return TOLERANCES["llama_cpp_f16_gelu"].bound
    return TOLERANCES["golden_site"].bound + allowance(length)


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_the_recording_belongs_to_these_weights(name: str, made: Make, golden_of) -> None:
    golden = golden_of(name)
    assert golden.about["tensors_sha256"] == tensors_sha256(made(name))
    assert [len(prompt) for prompt in golden.prompts] == list(FAMILY_CASES[name].lengths)


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_every_site_agrees_with_float64(name: str, route: str, made: Make, golden_of) -> None:
    golden = golden_of(name)
    captures = ember.open(made(name), route=route, threads=1).capture(
        tokens=golden.prompts, site=list(SITES), layers="all"
    )
    for site, expected in golden.sites().items():
        worst = disagreement(captures[site], expected)
        assert worst.max() < TOLERANCES["golden_site"].bound, f"{site}: max|d|/rms by prompt (and layer)\n{worst}"


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_continuations_are_those_of_float64(name: str, route: str, made: Make, golden_of) -> None:
    golden = golden_of(name)
    model = ember.open(made(name), route=route, threads=1)
    expected, margins = golden.arrays["greedy"], golden.arrays["greedy_margin"]
    for index, prompt in enumerate(golden.prompts):
        if expected[index, 0] < 0:
            continue  # too long to have been continued in float64
        given = model.generate(tokens=prompt, max_tokens=expected.shape[1], stop_at_eos=False).token_ids
        broken = first_break(expected[index], margins[index], list(given))
        assert broken is None, f"prompt {index} of {len(prompt)} tokens, {broken}"


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_layers_agree_with_llama_cpp_as_far_as_it_goes(name: str, route: str, made: Make, golden_of) -> None:
    golden, family = golden_of(name), FAMILY_CASES[name].tiny.family
    captures = ember.open(made(name), route=route, threads=1).capture(
        tokens=golden.prompts, site="after_layer", layers="all"
    )
    worst = disagreement(captures["after_layer"], golden.arrays["cpp_l_out"])
    bounds = [bound_of_llama_cpp(family, len(prompt)) for prompt in golden.prompts]
    assert (worst.max(-1) < bounds).all(), f"max|d|/rms by prompt and layer\n{worst}"


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_llama_cpp_was_near_float64_at_every_site(name: str, golden_of) -> None:
    """The two references agree: neither is taken on trust."""
    golden, family = golden_of(name), FAMILY_CASES[name].tiny.family
    bound = bound_of_llama_cpp(family, max(map(len, golden.prompts)))
    assert set(golden.about["llama_cpp_from_float64"]) == set(SITES) - {"before_layer"}
    assert max(golden.about["llama_cpp_from_float64"].values()) < bound


@pytest.mark.parametrize("name", [name for name, case in FAMILY_CASES.items() if case.tiny.family not in WITH_GELU])
def test_llama_cpp_continued_as_float64_does(name: str, golden_of) -> None:
    golden = golden_of(name)
    assert np.array_equal(golden.arrays["cpp_greedy"], golden.arrays["greedy"])
