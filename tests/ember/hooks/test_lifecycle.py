"""The lifecycle of the contract, rule by rule, on llama, qwen3 and gemma4 and on both routes."""

import numpy as np
import pytest

from ember.errors import InputError
from ember.hooks import (
    Experiment,
    ExperimentFailure,
    GenerationContext,
    LayerContext,
    ModelContext,
    TensorAccess,
    TracingState,
)
from ember.model import Model
from ember.work import UnitWork
from tests.ember.hooks.watchers import HEAD, PER_LAYER, TENSOR_HOOKS, Nothing, Watcher

PROMPT = [9, 17, 30, 12, 5]


def generated(model: Model, count: int, *experiments: Experiment, prompt: list[int] = PROMPT) -> list[int]:
    made = model.generate(tokens=prompt, max_tokens=count, stop_at_eos=False, experiments=experiments)
    assert len(made.token_ids) == count
    return made.token_ids


def evaluation(model: Model) -> list[str]:
    return [*PER_LAYER * model.n_layers, *HEAD]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_order_and_counts_of_a_generation(model: Model, count: int) -> None:
    watcher = Watcher()
    generated(model, count, watcher)
    assert [hook for _, hook in watcher.journal] == [
        "on_model_loaded",
        "before_prefill",
        *evaluation(model) * count,
        "on_generation_complete",
    ]
    phases = [call.phase for call in watcher.calls if call.hook in TENSOR_HOOKS]
    per_evaluation = 4 * model.n_layers + 2
    assert phases == ["prefill"] * per_evaluation + ["decode"] * per_evaluation * (count - 1)
    layers = [call.layer for call in watcher.calls if call.hook in PER_LAYER]
    assert layers == [layer for _ in range(count) for layer in range(model.n_layers) for _ in PER_LAYER]


def test_an_extraction_is_one_prefill_and_complete(model: Model) -> None:
    watcher = Watcher()
    model.capture(tokens=[PROMPT], experiments=[watcher])
    hooks = ["on_model_loaded", "before_prefill", *evaluation(model), "on_generation_complete"]
    assert [hook for _, hook in watcher.journal] == hooks
    assert watcher.calls[-1].context == GenerationContext(model.context, len(PROMPT), 0, 0, TracingState.DISABLED)


def test_several_experiments_are_called_in_the_order_of_the_list(model: Model) -> None:
    journal: list[tuple[str, str]] = []
    generated(model, 2, Watcher("b", journal=journal), Watcher("a", journal=journal))
    assert [name for name, _ in journal] == ["b", "a"] * (len(journal) // 2)
    assert [hook for _, hook in journal[::2]] == [hook for _, hook in journal[1::2]]


def test_a_generation_that_ends_at_a_stopping_token_completes_with_what_it_has(model: Model) -> None:
    free = generated(model, 3)
    stop = free[1]
    watcher = Watcher()
    work = UnitWork((np.array(PROMPT, np.int32),), max_tokens=9, stop_ids=(stop,))
    result = model.run_unit(work, [[watcher]])
    taken = free.index(stop) + 1
    assert result.produced[0].token_ids == tuple(free[:taken])
    complete = watcher.calls[-1].context
    assert (complete.generated_token_count, complete.decode_evaluation_count) == (taken, taken - 1)
    assert len(watcher.at("after_logits", "decode")) == taken - 1


def test_the_model_context(model: Model) -> None:
    watcher = Watcher()
    generated(model, 1, watcher)
    context = watcher.calls[0].context
    assert type(context) is ModelContext
    assert (context.family, context.architecture) == (model.architecture, model.architecture)
    assert (context.n_layers, context.hidden_size) == (model.n_layers, model.hidden_size)
    assert context.identifier == f"tiny-random-{model.architecture}"
    assert all(getattr(call.context, "model", context) == context for call in watcher.calls)


def test_the_execution_contexts(model: Model) -> None:
    watcher = Watcher()
    generated(model, 3, watcher)
    (before,) = watcher.at("before_prefill")
    (prefill, *decodes) = [call.context for call in watcher.at("after_logits")]
    assert before.context == prefill
    assert (prefill.phase, prefill.start_position, prefill.input_token_count, prefill.sequence_length) == (
        "prefill", 0, 5, 5,
    )  # fmt: skip
    assert prefill.token_position() is None
    for position, context in enumerate(decodes, start=5):
        assert (context.phase, context.start_position, context.input_token_count) == ("decode", position, 1)
        assert (context.sequence_length, context.token_position()) == (position + 1, position)
    assert {context.tracing for context in (prefill, *decodes)} == {TracingState.DISABLED}
    complete = watcher.calls[-1].context
    assert (complete.prompt_token_count, complete.generated_token_count, complete.decode_evaluation_count) == (5, 3, 2)


def test_a_prompt_of_one_token_has_its_position(model: Model) -> None:
    watcher = Watcher()
    generated(model, 1, watcher, prompt=[9])
    (context,) = [call.context for call in watcher.at("before_logits")]
    assert (context.phase, context.start_position, context.token_position()) == ("prefill", 0, 0)


def test_layer_contexts_nest(model: Model) -> None:
    watcher = Watcher()
    generated(model, 2, watcher)
    heads = {call.phase: call.context for call in watcher.at("before_logits")}
    for call in watcher.calls:
        if call.hook in PER_LAYER:
            assert type(call.context) is LayerContext
            assert call.context.execution == heads[call.phase]
            assert call.context.execution.model == model.context
            assert 0 <= call.context.layer < model.n_layers


def test_shapes_are_rows_and_columns(model: Model) -> None:
    watcher = Watcher()
    generated(model, 2, watcher)
    for call in watcher.calls:
        if call.hook in TENSOR_HOOKS:
            rows = len(PROMPT) if call.hook in PER_LAYER and call.phase == "prefill" else 1
            columns = model.vocab_size if call.hook == "after_logits" else model.hidden_size
            assert call.values.shape == (rows, columns)
            assert call.values.dtype == np.float32


def test_the_next_token_is_the_largest_logit_shown(model: Model) -> None:
    watcher = Watcher()
    ids = generated(model, 4, watcher)
    assert [int(call.values[0].argmax()) for call in watcher.at("after_logits")] == ids


def test_what_hooks_see_is_what_captures_keep(model: Model) -> None:
    watcher = Watcher()
    sites = [*PER_LAYER, *HEAD]
    found = model.capture(tokens=[PROMPT], site=sites[:4], position="all", experiments=[watcher])
    for site in PER_LAYER:
        shown = np.stack([call.values for call in watcher.at(site)], axis=1)  # [rows, layers, hidden]
        assert np.array_equal(shown, found[site])
    last = Watcher()
    found = model.capture(tokens=[PROMPT], site=list(HEAD), experiments=[last])
    for site in HEAD:
        assert np.array_equal(last.at(site)[0].values, found[site])


def test_a_view_kept_from_its_hook_raises(model: Model) -> None:
    kept: list[TensorAccess] = []
    watcher = Watcher(act=lambda hook, context, tensor: kept.append(tensor))
    generated(model, 2, watcher)
    assert len(kept) == len(evaluation(model)) * 2
    for access in kept:
        for use in (access.values, access.values_mut, access.zero):
            with pytest.raises(InputError, match="this TensorAccess has ended"):
                use()


def test_views_are_contiguous_read_only_and_stay_so(model: Model) -> None:
    checked = []

    def look(hook: str, context: object, tensor: TensorAccess) -> None:
        values = tensor.values()
        assert values.flags.c_contiguous
        with pytest.raises(ValueError, match="WRITEABLE"):
            values.setflags(write=True)
        assert tensor.values_mut().flags.writeable
        assert np.shares_memory(values, tensor.values_mut())
        checked.append(hook)

    generated(model, 2, Watcher(act=look))
    assert checked == evaluation(model) * 2


@pytest.mark.parametrize("write", ["values_mut", "zero"])
@pytest.mark.parametrize("hook", TENSOR_HOOKS)
def test_an_experiment_that_only_looks_fails_when_it_writes(model: Model, write: str, hook: str) -> None:
    class Looks(Watcher):
        def note(self, at: str, context: object, tensor: TensorAccess | None = None) -> None:
            super().note(at, context, tensor)
            if at == hook:
                getattr(tensor, write)()

    looks = Looks()
    assert looks.mutates is False
    with pytest.raises(ExperimentFailure, match=rf"failed in {hook} \(.*\): the experiment says mutates = False"):
        generated(model, 1, looks)


def test_what_an_experiment_finds_comes_back(model: Model) -> None:
    class Finder(Experiment):
        name = "finder"

        def results(self) -> dict[str, int]:
            return {"answer": 42}

    made = model.generate(tokens=PROMPT, max_tokens=1, experiments=[Watcher("w"), Finder(), Nothing()])
    assert made.findings == [("w", 3 + len(evaluation(model))), ("finder", {"answer": 42})]
