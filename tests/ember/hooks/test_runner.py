"""The lifecycle of one prompt's experiments, called directly: order, failures and their messages."""

import asyncio
import pickle

import numpy as np
import pytest

from ember.errors import EmberError, InputError
from ember.hooks import Experiment, ExperimentFailure, ModelContext, ModelFamily, TensorAccess, TracingState
from ember.hooks.experiment import check_experiment
from ember.hooks.runner import Runner
from ember.sites import SITES

MODEL = ModelContext(ModelFamily.LLAMA, None, "llama", 8, 3)
PER_LAYER = [name for name, site in SITES.items() if site.per_layer]
HOOKS = ["on_model_loaded", "before_prefill", *SITES, "on_generation_complete"]


class Journal(Experiment):
    """Writes down the calls it gets, in a list that several may share, and fails where it is told to."""

    def __init__(self, calls: list[tuple[str, str]], name: str = "journal", fails_in: str = "", at: int = 0) -> None:
        self.name, self._calls, self._fails_in, self._left = name, calls, fails_in, at
        self.error: BaseException = ValueError("expected a finite activation")

    def __getattribute__(self, hook: str):
        if hook not in HOOKS:
            return super().__getattribute__(hook)
        return lambda *given: self._note(hook)

    def _note(self, hook: str) -> None:
        self._calls.append((self.name, hook))
        if hook == self._fails_in:
            self._left -= 1
            if self._left < 0:
                raise self.error


def tensor() -> np.ndarray:
    return np.ones((1, 3), np.float32)


def run(runner: Runner, layers: int = 1, decodes: int = 1) -> None:
    """What the engine calls for a prompt of one token."""
    runner.load()
    runner.prefill(1)
    for step in range(1 + decodes):
        if step:
            runner.decode(step)
        for layer in range(layers):
            for site in PER_LAYER:
                runner.show(site, layer, tensor())
        runner.show("before_logits", -1, tensor())
        runner.show("after_logits", -1, tensor())
    runner.complete(1, 1 + decodes)


def test_every_hook_of_every_experiment_in_order() -> None:
    calls: list[tuple[str, str]] = []
    runner = Runner([Journal(calls, "a"), Journal(calls, "b")], MODEL, TracingState.DISABLED)
    run(runner)
    hooks = ["on_model_loaded", "before_prefill", *SITES, *SITES, "on_generation_complete"]
    assert calls == [(name, hook) for hook in hooks for name in ("a", "b")]
    assert runner.failure is None


@pytest.mark.parametrize(
    ("hook", "at", "where"),
    [
        ("on_model_loaded", 0, "on_model_loaded"),
        ("before_prefill", 0, "before_prefill (phase=prefill)"),
        ("before_layer", 1, "before_layer (phase=prefill, layer=1)"),
        ("after_attention", 0, "after_attention (phase=prefill, layer=0)"),
        ("after_attention", 9, "after_attention (phase=decode, layer=1)"),
        ("after_mlp", 8, "after_mlp (phase=decode, layer=0)"),
        ("after_layer", 7, "after_layer (phase=prefill, layer=7)"),
        ("before_logits", 0, "before_logits (phase=prefill)"),
        ("after_logits", 1, "after_logits (phase=decode)"),
        ("on_generation_complete", 0, "on_generation_complete"),
    ],
)
def test_the_message_of_every_kind_of_hook(hook: str, at: int, where: str) -> None:
    failing = Journal([], "my-experiment", hook, at)
    runner = Runner([failing], MODEL, TracingState.DISABLED)
    run(runner, layers=8)
    assert isinstance(runner.failure, ExperimentFailure)
    assert str(runner.failure) == f"experiment 'my-experiment' failed in {where}: expected a finite activation"
    assert runner.failure.__cause__ is failing.error
    assert isinstance(runner.failure, EmberError)


def test_the_message_of_the_contract_verbatim() -> None:
    failing = Journal([], "my-experiment", "after_attention", 15)
    runner = Runner([failing], MODEL, TracingState.DISABLED)
    run(runner, layers=8)
    assert str(runner.failure) == (
        "experiment 'my-experiment' failed in after_attention (phase=decode, layer=7): expected a finite activation"
    )
    failure = runner.failure
    assert (failure.experiment, failure.hook, failure.phase, failure.layer) == (
        "my-experiment", "after_attention", "decode", 7,
    )  # fmt: skip


@pytest.mark.parametrize("hook", HOOKS)
def test_no_hook_is_called_after_a_failure(hook: str) -> None:
    calls: list[tuple[str, str]] = []
    runner = Runner([Journal(calls, "a"), Journal(calls, "b", hook), Journal(calls, "c")], MODEL, TracingState.DISABLED)
    run(runner)
    assert calls[-1] == ("b", hook)
    assert calls.count(("b", hook)) == 1


@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_exception_of_the_experiment_passes_through(passing: type[BaseException]) -> None:
    failing = Journal([], fails_in="after_mlp")
    failing.error = passing()
    runner = Runner([failing], MODEL, TracingState.DISABLED)
    with pytest.raises(passing):
        run(runner)
    assert runner.failure is None


def test_an_exception_without_words_is_named_by_its_type() -> None:
    failing = Journal([], "x", "before_prefill")
    failing.error = ZeroDivisionError()
    runner = Runner([failing], MODEL, TracingState.DISABLED)
    run(runner)
    assert str(runner.failure) == "experiment 'x' failed in before_prefill (phase=prefill): ZeroDivisionError"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (asyncio.CancelledError("later"), "later"),  # no Exception
        (Unspeakable(), "Unspeakable"),
        (ValueError("half a \ud800"), "half a \\ud800"),  # must be fit to be written to a file
    ],
)
def test_whatever_is_raised_is_a_failure(error: BaseException, said: str) -> None:
    failing = Journal([], "x", "before_prefill")
    failing.error = error
    runner = Runner([failing], MODEL, TracingState.DISABLED)
    run(runner)
    assert runner.failure is not None
    assert runner.failure.__cause__ is error
    assert str(runner.failure) == f"experiment 'x' failed in before_prefill (phase=prefill): {said}"


def test_an_experiment_that_looks_cannot_begin_to_change() -> None:
    class Turncoat(Experiment):
        name = "turncoat"
        mutates = False

        def before_layer(self, ctx, hidden) -> None:
            self.mutates = True

        def after_mlp(self, ctx, contribution) -> None:
            contribution.zero()

    runner = Runner([Turncoat()], MODEL, TracingState.DISABLED)
    run(runner)
    assert str(runner.failure).startswith(
        "experiment 'turncoat' failed in after_mlp (phase=prefill, layer=0): the experiment says mutates = False"
    )


def test_a_failure_travels_between_processes() -> None:
    failure = ExperimentFailure("x", "after_mlp", None, 3, "why")
    copy = pickle.loads(pickle.dumps(failure))
    assert str(copy) == str(failure) == "experiment 'x' failed in after_mlp (layer=3): why"
    assert vars(copy) == vars(failure)


@pytest.mark.parametrize("site", SITES)
def test_a_view_ends_with_its_hook_even_when_the_hook_fails(site: str) -> None:
    kept: list[TensorAccess] = []

    class Keeper(Experiment):
        name = "keeper"

    def keep(ctx: object, access: TensorAccess) -> None:
        assert access.shape == (1, 3)
        kept.append(access)
        raise ValueError

    keeper = Keeper()
    setattr(keeper, site, keep)
    runner = Runner([keeper], MODEL, TracingState.DISABLED)
    runner.prefill(1)
    runner.show(site, 0 if site in PER_LAYER else -1, tensor())
    assert runner.failure is not None
    with pytest.raises(InputError, match="has ended"):
        kept[0].values()


def test_what_is_no_experiment_or_has_no_name_is_refused() -> None:
    class Nameless(Experiment):
        pass

    class Numbered(Experiment):
        name = 3

    with pytest.raises(InputError, match=r"found dict, expected an ember\.hooks\.Experiment"):
        check_experiment({})
    with pytest.raises(InputError, match=r"found type, expected an ember\.hooks\.Experiment"):
        check_experiment(Nameless)
    for made in (Nameless(), Numbered()):
        with pytest.raises(InputError, match=r"\.name: found (None|3), expected a text that names the experiment"):
            check_experiment(made)


def test_a_name_that_no_file_can_hold_is_refused() -> None:
    class Half(Experiment):
        name = "x\ud800"

    with pytest.raises(InputError, match="expected a text that names the experiment"):
        check_experiment(Half())


def test_mutates_is_yes_or_no() -> None:
    class Text(Experiment):
        name = "text"
        mutates = "false"

    with pytest.raises(InputError, match="experiment 'text': mutates is 'false', expected True or False"):
        check_experiment(Text())


def test_methods_of_which_a_call_runs_nothing_are_refused() -> None:
    class Awaited(Experiment):
        name = "awaited"

        async def after_mlp(self, ctx, contribution) -> None:
            contribution.zero()

    class Yielding(Experiment):
        name = "yielding"

        def results(self):
            yield 1

    for made, hook in ((Awaited(), "after_mlp"), (Yielding(), "results")):
        with pytest.raises(InputError, match=f"{hook} is a coroutine or a generator, of which a call runs nothing"):
            check_experiment(made)


def test_a_bare_experiment_does_nothing_and_finds_nothing() -> None:
    class Bare(Experiment):
        name = "bare"

    runner = Runner([Bare()], MODEL, TracingState.DISABLED)
    run(runner)
    assert runner.failure is None
    assert runner.results() == []
    assert Bare.mutates is True
