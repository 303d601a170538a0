"""A hook that fails ends its prompt and nothing else: messages, causes, later hooks, neighbours."""

import threading

import numpy as np
import pytest

import ember
from ember.errors import EmberError, InputError
from ember.hooks import ExperimentFailure, TensorAccess
from ember.hooks.zero_layer_output import ZeroLayerOutput
from ember.model import Model
from ember.work import CaptureWork, UnitResult, UnitWork
from tests.ember.hooks.watchers import Failing, Watcher

PROMPT = [9, 17, 30, 12, 5]
OTHERS = [[44, 8, 77, 101], [250], [9, 17, 30, 200, 3, 3]]
FAILURES = [
    # hook, its call from 0, the parenthesis ({last}: the last layer)
    ("on_model_loaded", 0, ""),
    ("before_prefill", 0, " (phase=prefill)"),
    ("before_layer", 0, " (phase=prefill, layer=0)"),
    ("after_attention", 1, " (phase=prefill, layer=1)"),
    ("after_mlp", 0, " (phase=prefill, layer=0)"),
    ("after_layer", 1, " (phase=prefill, layer=1)"),
    ("before_logits", 0, " (phase=prefill)"),
    ("after_logits", 0, " (phase=prefill)"),
    ("before_logits", 1, " (phase=decode)"),
    ("after_logits", 2, " (phase=decode)"),
    ("on_generation_complete", 0, ""),
]
DECODE_HOOKS = ("before_layer", "after_attention", "after_mlp", "after_layer")


def ids(prompt: list[int]) -> np.ndarray:
    return np.array(prompt, np.int32)


@pytest.mark.parametrize(("hook", "at", "where"), FAILURES)
def test_a_generation_ends_with_the_message_and_the_cause(model: Model, hook: str, at: int, where: str) -> None:
    failing = Failing(hook, at)
    with pytest.raises(ExperimentFailure) as caught:
        model.generate(tokens=PROMPT, max_tokens=4, stop_at_eos=False, experiments=[failing])
    assert str(caught.value) == f"experiment 'my-experiment' failed in {hook}{where}: expected a finite activation"
    assert caught.value.__cause__ is failing.error
    assert isinstance(caught.value, EmberError)
    assert caught.value.exit_status == 1
    assert failing.journal[-1] == ("my-experiment", hook)
    assert failing.journal.count(("my-experiment", hook)) == at + 1


@pytest.mark.parametrize("hook", DECODE_HOOKS)
def test_the_message_of_a_layer_hook_while_decoding(model: Model, hook: str) -> None:
    last = model.n_layers - 1
    failing = Failing(hook, model.n_layers + last)
    with pytest.raises(ExperimentFailure) as caught:
        model.generate(tokens=PROMPT, max_tokens=4, stop_at_eos=False, experiments=[failing])
    assert str(caught.value) == (
        f"experiment 'my-experiment' failed in {hook} (phase=decode, layer={last}): expected a finite activation"
    )
    failure = caught.value
    assert (failure.experiment, failure.hook, failure.phase, failure.layer) == ("my-experiment", hook, "decode", last)


@pytest.mark.parametrize(("hook", "at", "where"), FAILURES[:8])
def test_an_extraction_ends_too(model: Model, hook: str, at: int, where: str) -> None:
    with pytest.raises(ExperimentFailure) as caught:
        model.capture(tokens=[PROMPT], experiments=[Failing(hook, at)])
    assert str(caught.value) == f"experiment 'my-experiment' failed in {hook}{where}: expected a finite activation"


@pytest.mark.parametrize(("hook", "at", "where"), FAILURES)
def test_no_later_hook_of_any_experiment_of_the_prompt_is_called(model: Model, hook: str, at: int, where: str) -> None:
    journal: list[tuple[str, str]] = []
    before, after = Watcher("before", journal=journal), Watcher("after", journal=journal)
    together = [before, Failing(hook, at, journal=journal), after]
    with pytest.raises(ExperimentFailure):
        model.generate(tokens=PROMPT, max_tokens=4, stop_at_eos=False, experiments=together)
    assert journal[-2:] == [("before", hook), ("my-experiment", hook)]
    assert journal.count(("before", hook)) == journal.count(("after", hook)) + 1


@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("hook", ["on_model_loaded", "after_mlp", "after_logits"])
def test_an_interrupt_is_no_failure(model: Model, hook: str, passing: type[BaseException]) -> None:
    watcher = Watcher()
    with pytest.raises(passing):
        model.generate(tokens=PROMPT, max_tokens=2, experiments=[Failing(hook, error=passing()), watcher])
    assert ("watcher", "on_generation_complete") not in watcher.journal
    model.generate(tokens=PROMPT, max_tokens=2)  # the model is as it was


def test_a_layer_outside_the_model_fails_before_anything_runs(model: Model) -> None:
    with pytest.raises(
        ExperimentFailure,
        match=rf"^experiment 'zero_layer_output' failed in on_model_loaded: layer 99 does not exist: the model has "
        rf"{model.n_layers} layers; use 0 to {model.n_layers - 1}, or -1 to -{model.n_layers} from the end$",
    ) as caught:
        model.generate(tokens=PROMPT, max_tokens=2, experiments=[ZeroLayerOutput("99:mlp")])
    assert isinstance(caught.value.__cause__, InputError)


def unit(model: Model, *first: Watcher, others: type[Watcher] | None = None) -> UnitResult:
    """Continue four prompts together; the first has the experiments `first`, the others one each or none."""
    prompts = (ids(PROMPT), *map(ids, OTHERS))
    layers = tuple(range(model.n_layers))
    everywhere = tuple(tuple(range(len(prompt))) for prompt in prompts)
    captures = (CaptureWork("after_layer", layers, everywhere), CaptureWork("after_logits", (-1,), everywhere))
    captures += (CaptureWork("after_attention", layers, ((),) * 4, step=-1),)
    mine = [[] if others is None else [others()] for _ in OTHERS]
    return model.run_unit(UnitWork(prompts, captures, max_tokens=4), [list(first), *mine])


def same_but_for_the_first(a: UnitResult, b: UnitResult) -> None:
    """Under contract 1 too: a prompt whose hook failed stays in the company of the others."""
    assert a.produced[1:] == b.produced[1:]
    for mine, theirs in zip(a.captures[:2], b.captures[:2], strict=True):
        assert np.array_equal(mine[:, len(PROMPT) :], theirs[:, len(PROMPT) :])
    others = sum(len(made.token_ids) - 1 for made in a.produced[1:])
    assert others == 9
    assert np.array_equal(a.captures[2][:, -others:], b.captures[2][:, -others:])


@pytest.mark.parametrize(("hook", "at", "where"), FAILURES)
def test_other_prompts_of_the_unit_are_unharmed_bit_for_bit(model: Model, hook: str, at: int, where: str) -> None:
    whole, failed = unit(model, Watcher()), unit(model, Failing(hook, at))
    assert failed.hook_failures == {
        0: f"experiment 'my-experiment' failed in {hook}{where}: expected a finite activation"
    }
    assert (whole.hook_failures, whole.failures, failed.failures) == ({}, {}, {})
    same_but_for_the_first(whole, failed)


@pytest.mark.parametrize("hook", ["before_layer", "after_mlp", "after_logits"])
def test_what_a_failing_hook_left_behind_harms_nobody(model: Model, hook: str) -> None:
    def spoil(at: str, context: object, tensor: TensorAccess) -> None:
        if at == hook:
            tensor.values_mut()[...] = np.nan
            raise ValueError("spoilt")

    failed = unit(model, Watcher(act=spoil))
    assert "spoilt" in failed.hook_failures[0]
    assert failed.failures == {}
    same_but_for_the_first(unit(model, Watcher()), failed)


@pytest.mark.parametrize("hook", ["before_layer", "after_attention", "after_layer", "before_logits", "after_logits"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_values_that_are_not_finite_end_the_prompt_that_they_were_put_into(model: Model, hook: str, phase: str) -> None:
    """No exception: the experiment writes a NaN and goes on; the engine finds it."""

    def spoil(at: str, context: object, tensor: TensorAccess) -> None:
        if at == hook and getattr(context, "execution", context).phase == phase:
            tensor.values_mut()[-1, 0] = np.nan

    watcher = Watcher(act=spoil)
    result = unit(model, watcher)
    assert set(result.failures) == {0}
    assert result.hook_failures == {}
    assert ("watcher", "on_generation_complete") not in watcher.journal
    if phase == "prefill" or model.keeps_bits:  # it leaves the others' company when it decodes: contract 2 only
        same_but_for_the_first(unit(model, Watcher()), result)


def test_each_prompt_fails_for_itself(model: Model) -> None:
    failing = [[Failing("after_mlp", index, name=f"e{index}")] for index in range(4)]
    prompts = (ids(PROMPT), *map(ids, OTHERS))
    result = model.run_unit(UnitWork(prompts, max_tokens=3), failing)
    assert {p: why.split(" (")[0] for p, why in result.hook_failures.items()} == {
        p: f"experiment 'e{p}' failed in after_mlp" for p in range(4)
    }
    assert result.findings == []


def test_findings_of_whole_prompts_only(model: Model) -> None:
    result = unit(model, Failing("after_layer"), others=Watcher)
    assert [(prompt, name) for prompt, name, _ in result.findings] == [(1, "watcher"), (2, "watcher"), (3, "watcher")]
    evaluations = 4 * (4 * model.n_layers + 2)
    assert {found for _, _, found in result.findings} == {3 + evaluations}


def test_results_that_fail_are_a_failure_of_their_prompt(model: Model) -> None:
    class Wordless(Watcher):
        def results(self) -> int:
            raise KeyError("nothing")

    with pytest.raises(ExperimentFailure, match=r"^experiment 'watcher' failed in results: 'nothing'$"):
        model.generate(tokens=PROMPT, max_tokens=2, experiments=[Wordless()])
    result = unit(model, Wordless(), others=Watcher)
    assert result.hook_failures == {0: "experiment 'watcher' failed in results: 'nothing'"}
    assert [prompt for prompt, _, _ in result.findings] == [1, 2, 3]


@pytest.mark.parametrize("evaluate", ["capture", "generate", "logit_lens", "trace"])
def test_a_hook_cannot_evaluate_with_the_model_that_is_running(model: Model, evaluate: str) -> None:
    """It would write over the tensors of the evaluation that called it."""

    def again(hook: str, context: object, tensor: TensorAccess) -> None:
        if evaluate == "logit_lens":
            model.logit_lens(np.ones((1, model.hidden_size), np.float32))
        elif evaluate == "capture":
            model.capture(tokens=[[1, 2]])
        else:
            getattr(model, evaluate)(tokens=[1, 2], max_tokens=1)

    free = model.generate(tokens=PROMPT, max_tokens=3)
    with pytest.raises(ExperimentFailure, match=r"this model is in the middle of an evaluation: .* open the file once"):
        model.generate(tokens=PROMPT, max_tokens=3, experiments=[Watcher(act=again)])
    assert model.generate(tokens=PROMPT, max_tokens=3) == free


def test_a_listener_cannot_either(model: Model) -> None:
    with pytest.raises(InputError, match="this model is in the middle of an evaluation"):
        model.generate(tokens=PROMPT, max_tokens=3, on_token=lambda token, text: model.logits(tokens=[[1]]))


def test_another_thread_is_told_so(model: Model) -> None:
    told: list[BaseException] = []

    def elsewhere() -> None:
        try:
            model.logits(tokens=[[1, 2]])
        except InputError as error:
            told.append(error)

    def meanwhile(hook: str, context: object, tensor: TensorAccess) -> None:
        if hook == "before_logits":
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()

    model.generate(tokens=PROMPT, max_tokens=1, experiments=[Watcher(act=meanwhile)])
    assert len(told) == 1


def test_a_model_opened_once_more_can_evaluate_in_a_hook(model: Model) -> None:
    found = []
    with ember.open(model.file.path, route=model.route, threads=1) as other:

        def ask(hook: str, context: object, tensor: TensorAccess) -> None:
            found.append(other.logits(tokens=[[1, 2]]))

        made = model.generate(tokens=PROMPT, max_tokens=2, experiments=[Watcher(act=ask)])
    assert made.token_ids == model.generate(tokens=PROMPT, max_tokens=2).token_ids
    expected = model.logits(tokens=[[1, 2]])
    assert all(np.array_equal(one, expected) for one in found)
