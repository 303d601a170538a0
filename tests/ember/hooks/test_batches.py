"""Several prompts: an instance belongs to one of them, factories make one for each, and none is built for none."""

import json
from functools import partial

import numpy as np
import pytest

import ember.model
from ember.errors import InputError
from ember.hooks import Experiment, TensorAccess
from ember.hooks.activation_stats import ActivationStats
from ember.hooks.loading import load_experiment
from ember.hooks.runner import Runner
from ember.model import Model
from ember.sites import SITES
from ember.work import Sampling, UnitWork
from tests.ember.hooks.watchers import HEAD, PER_LAYER, Nothing, Watcher

PROMPTS = [[9, 17, 30, 12, 5], [44, 8, 77, 101], [250], [9, 17, 30, 200, 3, 3], [9, 17, 30, 12, 5]]


def ids(prompts: list[list[int]]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(prompt, np.int32) for prompt in prompts)


def test_a_factory_makes_one_instance_a_prompt(model: Model) -> None:
    made: list[Watcher] = []

    def factory() -> Watcher:
        made.append(Watcher(f"w{len(made)}"))
        return made[-1]

    found = model.capture(tokens=PROMPTS, site=list(PER_LAYER), position="all", experiments=[factory])
    assert len(made) == len(PROMPTS)
    evaluation = [*PER_LAYER * model.n_layers, *HEAD]
    hooks = ["on_model_loaded", "before_prefill", *evaluation, "on_generation_complete"]
    starts = np.cumsum([0, *map(len, PROMPTS)])
    for index, watcher in enumerate(made):
        assert watcher.journal == [(f"w{index}", hook) for hook in hooks]
        (context,) = [call.context for call in watcher.at("before_logits")]
        assert (context.input_token_count, context.start_position) == (len(PROMPTS[index]), 0)
        for site in PER_LAYER:  # it sees the rows of its own prompt, in order
            shown = np.stack([call.values for call in watcher.at(site)], axis=1)
            assert np.array_equal(shown, found[site][starts[index] : starts[index + 1]])
    assert found.findings == [(i, f"w{i}", len(hooks)) for i in range(len(PROMPTS))]


def test_a_class_and_a_loaded_experiment_are_factories(model: Model) -> None:
    for factory in (ActivationStats, load_experiment("activation_stats")):
        found = model.capture(tokens=PROMPTS, experiments=[factory])
        assert [(prompt, name) for prompt, name, _ in found.findings] == [
            (i, "activation_stats") for i in range(len(PROMPTS))
        ]
        assert all(stats["prompt_tokens"] == len(PROMPTS[i]) for i, _, stats in found.findings)
        json.dumps(found.findings, allow_nan=False)


def test_an_instance_for_several_prompts_is_refused(model: Model) -> None:
    with pytest.raises(InputError, match=r"'watcher' is one instance for 5 prompts: give its class, or a factory"):
        model.capture(tokens=PROMPTS, experiments=[Watcher()])


def test_one_instance_twice_is_refused(model: Model) -> None:
    one = Watcher()
    with pytest.raises(InputError, match="one experiment instance serves twice: give a factory"):
        model.capture(tokens=PROMPTS[:1], experiments=[one, one])
    with pytest.raises(InputError, match="one experiment instance serves twice: give a factory"):
        model.generate(tokens=PROMPTS[0], max_tokens=1, experiments=[one, one])
    with pytest.raises(InputError, match="one experiment instance serves twice: give a factory"):
        model.capture(tokens=PROMPTS, experiments=[lambda: one])
    assert one.journal == []


@pytest.mark.parametrize("given", [3, "activation_stats", {}])
def test_what_is_no_experiment_is_refused(model: Model, given: object) -> None:
    with pytest.raises(InputError, match=r"expected an ember\.hooks\.Experiment, a class or a factory"):
        model.capture(tokens=PROMPTS, experiments=[given])
    with pytest.raises(InputError, match=r"found dict, expected an ember\.hooks\.Experiment"):
        model.capture(tokens=PROMPTS, experiments=[dict])


def test_experiments_that_are_no_list_are_refused(model: Model) -> None:
    for given in (Watcher(), Watcher):
        with pytest.raises(InputError, match="experiments is one experiment; give a list"):
            model.generate(tokens=PROMPTS[0], max_tokens=1, experiments=given)


def test_an_experiment_without_a_name_is_refused(model: Model) -> None:
    class Nameless(Experiment):
        pass

    for given in (Nameless, Nameless()):
        with pytest.raises(InputError, match=r"Nameless\.name: found None, expected a text that names the experiment"):
            model.capture(tokens=PROMPTS[:1], experiments=[given])


def test_a_prompt_with_an_experiment_shares_no_rows(model: Model) -> None:
    work = UnitWork(ids(PROMPTS), max_tokens=1)
    rows = sum(map(len, PROMPTS))
    free = model.run_unit(work)
    assert (free.rows, free.rows_computed) == (rows, 13)  # 5 + 4 + 1 + 3 of its own + none
    one = model.run_unit(work, [[], [], [], [Watcher()], []])
    assert one.rows_computed == 16
    assert model.run_unit(work, [[Watcher()] for _ in PROMPTS]).rows_computed == rows
    assert free.produced == one.produced


def test_every_prompt_of_a_unit_has_its_own_decode_positions(model: Model) -> None:
    watchers = [Watcher() for _ in PROMPTS]
    model.run_unit(UnitWork(ids(PROMPTS), max_tokens=3), [[watcher] for watcher in watchers])
    for prompt, watcher in zip(PROMPTS, watchers, strict=True):
        steps = [call.context.token_position() for call in watcher.at("after_logits", "decode")]
        assert steps == [len(prompt), len(prompt) + 1]


def test_prompts_that_end_early_leave_the_others_going(model: Model) -> None:
    work = UnitWork(ids(PROMPTS[:4]), max_tokens=5)
    watchers = [Watcher() for _ in range(4)]
    result = model.run_unit(work, [[w] for w in watchers], lambda prompt, token, made: len(made) > prompt)
    assert [len(made.token_ids) for made in result.produced] == [1, 2, 3, 4]
    for count, watcher in enumerate(watchers, start=1):
        assert len(watcher.at("after_logits")) == count
        complete = watcher.calls[-1].context
        assert (complete.generated_token_count, complete.decode_evaluation_count) == (count, count - 1)


def test_logits_changed_by_one_prompt_are_its_own(model: Model) -> None:
    def want(hook: str, context: object, tensor: TensorAccess) -> None:
        if hook == "after_logits":
            tensor.values_mut()[0, 7] = 1e6

    free = model.run_unit(UnitWork(ids(PROMPTS), max_tokens=3), [[Nothing()] for _ in PROMPTS])
    for sampling in (None, Sampling(1.0, 0, 1.0, 5, tuple("abcde"))):
        work = UnitWork(ids(PROMPTS), max_tokens=3, sampling=sampling)
        free = model.run_unit(work, [[Nothing()] for _ in PROMPTS])
        bent = model.run_unit(work, [[Watcher(act=want)] if p == 1 else [Nothing()] for p in range(5)])
        assert bent.produced[1].token_ids == (7, 7, 7)
        assert [made for p, made in enumerate(bent.produced) if p != 1] == [
            made for p, made in enumerate(free.produced) if p != 1
        ]


def test_without_an_experiment_nothing_is_built_and_nothing_called(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("built without an experiment")

    for name in ("load", "prefill", "decode", "show", "complete", "results"):
        monkeypatch.setattr(Runner, name, refuse)
    monkeypatch.setattr(Runner, "__init__", refuse)
    monkeypatch.setattr(TensorAccess, "__init__", refuse)
    monkeypatch.setattr(ember.model, "Runner", refuse)
    model.generate(tokens=PROMPTS[0], max_tokens=3)
    model.capture(tokens=PROMPTS, site=list(SITES))
    model.logits(tokens=PROMPTS)
    model.run_unit(UnitWork(ids(PROMPTS), max_tokens=2), [[], [], [], [], []])
    with pytest.raises(AssertionError, match="built without"):
        model.generate(tokens=PROMPTS[0], max_tokens=1, experiments=[Watcher()])


def test_options_by_partial(model: Model) -> None:
    found = model.capture(tokens=PROMPTS, experiments=[partial(Watcher, "named")])
    assert {name for _, name, _ in found.findings} == {"named"}


def test_the_origin_says_what_acted(model: Model) -> None:
    assert "acting" not in model.capture(tokens=PROMPTS).provenance
    found = model.capture(tokens=PROMPTS, experiments=[Watcher, Nothing], observe="before")
    assert found.provenance["acting"] == {
        "observe": "before",
        "interventions": [],
        "experiments": [{"name": "watcher", "mutates": False}, {"name": "nothing", "mutates": True}],
    }
