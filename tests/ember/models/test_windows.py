"""N08: a window of w keys is the query's own and the w - 1 before it, on whatever tile borders they lie."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ember
from tests.foundry.families import Tiny

Make = Callable[..., Path]
TOKENS = [20, 31, 42, 53, 64, 75, 86, 97]


def one_sliding_layer(family: str, window: int) -> Tiny:
    return Tiny(family, n_layers=1, window=window, sliding=(True,), ple=8 if family == "gemma4" else 0, context=200)


@pytest.fixture(params=["reference", "fast"])
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["gemma3", "gemma4"])
def gemma(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def changed_positions(path: Path, route: str, tokens: list[int], at: int) -> list[int]:
    """Positions whose state after the layer changes when the token at `at` does."""
    other = [*tokens[:at], tokens[at] + 100, *tokens[at + 1 :]]
    with ember.open(path, route=route, threads=1) as model:
        one, two = (
            model.capture(tokens=[ids], site="after_layer", layers=[0], position="all")["after_layer"][:, 0]
            for ids in (tokens, other)
        )
    return np.flatnonzero((one != two).any(-1)).tolist()  # to the bit: both runs are of the same shape


def test_a_window_of_four_reaches_three_back(gemma: str, route: str, make: Make) -> None:
    path = make(one_sliding_layer(gemma, 4))
    assert changed_positions(path, route, TOKENS, at=0) == [0, 1, 2, 3]
    assert changed_positions(path, route, TOKENS, at=2) == [2, 3, 4, 5]


@pytest.mark.parametrize("window", [1, 31, 32, 33, 64])
def test_windows_around_tiles_reach_as_far_as_they_say(window: int, gemma: str, route: str, make: Make) -> None:
    path, tokens = make(one_sliding_layer(gemma, window)), np.random.default_rng(window).integers(8, 190, 130).tolist()
    for at in (0, 30, 31, 32, 63):
        assert changed_positions(path, route, tokens, at) == list(range(at, min(130, at + window)))


def test_a_layer_that_sees_everything_has_no_window(make: Make, route: str) -> None:
    everything = Tiny("gemma3", n_layers=1, window=4, sliding=1, context=64)
    assert changed_positions(make(everything), route, TOKENS, at=0) == list(range(8))


def test_steps_of_a_continuation_see_the_same_window(gemma: str, route: str, make: Make) -> None:
    """The ids of a continuation are those that the logits of ever longer prompts give."""
    with ember.open(make(one_sliding_layer(gemma, 4)), route=route, threads=1) as model:
        ids = model.generate(tokens=TOKENS[:3], max_tokens=8, stop_at_eos=False).token_ids
        expected: list[int] = []
        for _ in range(8):
            expected.append(int(model.logits(tokens=[TOKENS[:3] + expected])[0].argmax()))
    assert ids == expected
