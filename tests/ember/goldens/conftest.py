"""Where recorded values lie, and how a model is compared with them."""

from pathlib import Path

import numpy as np
import pytest

import ember
from ember.tolerances import TOLERANCES
from tests.foundry.goldens import SITES, Golden, allowance, disagreement, first_break

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(params=["reference", "fast"])
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def recorded() -> Path:
    return RECORDED


@pytest.fixture(scope="session")
def agrees():
    """Compare every site of every layer, and the greedy continuations, of all prompts of a golden."""

    def compare(model: ember.Model, golden: Golden) -> None:
        captures = model.capture(tokens=golden.prompts, site=list(SITES), layers="all")
        bounds = np.array([TOLERANCES["golden_site"].bound + allowance(len(prompt)) for prompt in golden.prompts])
        for site, expected in golden.sites().items():
            worst = disagreement(captures[site], expected).reshape(len(bounds), -1)
            assert (worst < bounds[:, None]).all(), f"{site}: max|d|/rms by prompt and layer\n{worst}"
        _same_continuations(model, golden)

    return compare


def _same_continuations(model: ember.Model, golden: Golden) -> None:
    expected, margins = golden.arrays["greedy"], golden.arrays["greedy_margin"]
    for index, prompt in enumerate(golden.prompts):
        generation = model.generate(tokens=prompt, max_tokens=expected.shape[1], stop_at_eos=False)
        broken = first_break(expected[index], margins[index], list(generation.token_ids))
        assert broken is None, f"prompt {index} of {len(prompt)} tokens, {broken}"


@pytest.fixture(scope="session")
def same_continuations():
    return _same_continuations
