"""Over random units: whatever some experiments do or fail at, the prompts without them keep every bit."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ember.hooks import Experiment, TensorAccess
from ember.model import Model
from ember.work import CaptureWork, UnitResult, UnitWork
from tests.ember.hooks.watchers import TENSOR_HOOKS, Failing, Watcher

prompts_ = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=40), min_size=2, max_size=5)
hooks_ = st.sampled_from(TENSOR_HOOKS)


def noisy(seed: int, hook: str) -> Watcher:
    """Change a hook's tensor by numbers of its own, sometimes to what is not finite."""
    rng = np.random.default_rng(seed)

    def act(at: str, context: object, tensor: TensorAccess) -> None:
        if at == hook:
            values = tensor.values_mut()
            values += rng.standard_normal(values.shape).astype(np.float32)
            if seed % 5 == 0:
                values[-1, 0] = rng.choice([np.nan, np.inf, -np.inf])

    return Watcher(act=act)


def run(model: Model, prompts: list[list[int]], experiments: list[list[Experiment]]) -> UnitResult:
    ids = tuple(np.array(prompt, np.int32) for prompt in prompts)
    everywhere = tuple(tuple(range(len(prompt))) for prompt in ids)
    layers = tuple(range(model.n_layers))
    captures = (CaptureWork("after_layer", layers, everywhere), CaptureWork("after_logits", (-1,), everywhere))
    return model.run_unit(UnitWork(ids, captures, max_tokens=3), experiments)


@pytest.mark.parametrize("name", ["tiny-llama", "gemma4"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompts=prompts_, data=st.data())
def test_what_some_experiments_do_is_no_business_of_other_prompts(
    opened, route: str, name: str, prompts: list[list[int]], data: st.DataObject
) -> None:
    model = opened(name, route)
    acting = data.draw(st.lists(st.booleans(), min_size=len(prompts), max_size=len(prompts)), "acting")
    doing = [
        data.draw(st.tuples(hooks_, st.integers(0, 8), st.booleans()), f"what prompt {i} does") if on else None
        for i, on in enumerate(acting)
    ]
    quiet: list[list[Experiment]] = [[] if what is None else [Watcher()] for what in doing]
    loud: list[list[Experiment]] = [
        [] if what is None else [Failing(what[0], what[1]) if what[2] else noisy(what[1], what[0])] for what in doing
    ]
    before, after = run(model, prompts, quiet), run(model, prompts, loud)
    assert (before.failures, before.hook_failures) == ({}, {})
    starts = np.cumsum([0, *map(len, prompts)])
    numeric = set(after.failures) and not model.keeps_bits  # such a prompt leaves the company: contract 2
    for i, what in enumerate(doing):
        if what is None:
            assert i not in after.failures
            assert i not in after.hook_failures
            for mine, theirs in zip(before.captures, after.captures, strict=True):
                assert np.array_equal(mine[:, starts[i] : starts[i + 1]], theirs[:, starts[i] : starts[i + 1]])
            assert numeric or before.produced[i] == after.produced[i]
