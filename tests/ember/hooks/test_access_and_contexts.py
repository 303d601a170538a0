"""What a hook is given: a view that it cannot keep, resize or make writeable, and contexts of names and counts."""

import dataclasses
import enum

import numpy as np
import pytest

from ember.errors import InputError
from ember.hooks import (
    ExecutionContext,
    ExecutionPhase,
    GenerationContext,
    LayerContext,
    ModelContext,
    ModelFamily,
    TensorAccess,
    TensorDType,
    TracingState,
)

MODEL = ModelContext(ModelFamily.QWEN3, "a name", "qwen3", 4, 3)
EXECUTION = ExecutionContext(MODEL, ExecutionPhase.PREFILL, 0, 2, 2, TracingState.DISABLED)
CONTEXTS = [
    MODEL,
    EXECUTION,
    LayerContext(EXECUTION, 1),
    GenerationContext(MODEL, 2, 3, 2, TracingState.DISABLED),
]
FIELDS = {
    ModelContext: ["family", "identifier", "architecture", "n_layers", "hidden_size"],
    ExecutionContext: ["model", "phase", "start_position", "input_token_count", "sequence_length", "tracing"],
    LayerContext: ["execution", "layer"],
    GenerationContext: [
        "model",
        "prompt_token_count",
        "generated_token_count",
        "decode_evaluation_count",
        "tracing",
    ],
}


def ended() -> TensorAccess:
    access = TensorAccess(np.zeros((1, 2), np.float32), mutable=True)
    access.close()
    return access


def test_shape_and_type() -> None:
    access = TensorAccess(np.zeros((2, 3), np.float32), mutable=False)
    assert access.shape == (2, 3)
    assert access.dtype is TensorDType.F32
    assert list(TensorDType) == ["f32"]


def test_values_are_the_models_own_memory() -> None:
    array = np.zeros((2, 3), np.float32)
    access = TensorAccess(array, mutable=True)
    seen = access.values()
    access.values_mut()[1, 2] = 7
    assert array[1, 2] == seen[1, 2] == 7
    assert np.shares_memory(seen, array)
    assert (seen.dtype, seen.shape, seen.flags.c_contiguous) == (np.float32, (2, 3), True)
    access.zero()
    assert not array.any()


@pytest.mark.parametrize("mutable", [True, False])
def test_values_cannot_be_made_writeable(mutable: bool) -> None:
    array = np.zeros((2, 3), np.float32)
    seen = TensorAccess(array, mutable=mutable).values()
    with pytest.raises(ValueError, match="read-only"):
        seen[0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        seen.flags.writeable = True
    with pytest.raises(ValueError, match="WRITEABLE"):
        seen.setflags(write=True)
    with pytest.raises(ValueError, match="WRITEABLE"):
        seen.view(np.uint32).setflags(write=True)
    with pytest.raises(ValueError, match="WRITEABLE"):
        seen[...].setflags(write=True)
    with pytest.raises(ValueError, match="read-only"):
        np.copyto(seen, 1)
    assert array.flags.writeable
    assert not array.any()


def test_an_array_can_not_be_resized_and_a_view_of_another_shape_leaves_the_tensor_alone() -> None:
    access = TensorAccess(np.zeros((2, 3), np.float32), mutable=True)
    for array in (access.values(), access.values_mut()):
        with pytest.raises(ValueError, match="resize"):
            array.resize((4, 4))
    access.values_mut().reshape(6)[0] = 1
    assert access.shape == (2, 3)


def test_an_experiment_that_only_looks_cannot_write() -> None:
    array = np.ones((1, 2), np.float32)
    access = TensorAccess(array, mutable=False)
    for write in (access.values_mut, access.zero):
        with pytest.raises(InputError, match="mutates = False, so its tensors are read-only; set mutates = True"):
            write()
    assert array.all()
    assert array.flags.writeable


@pytest.mark.parametrize("use", ["values", "values_mut", "zero"])
def test_methods_raise_after_the_hook(use: str) -> None:
    with pytest.raises(InputError, match="this TensorAccess has ended: use it inside its hook only, and copy"):
        getattr(ended(), use)()


@pytest.mark.parametrize("use", ["shape", "dtype"])
def test_properties_raise_after_the_hook(use: str) -> None:
    with pytest.raises(InputError, match="has ended"):
        getattr(ended(), use)


def test_a_view_carries_nothing_else_and_takes_nothing() -> None:
    access = TensorAccess(np.zeros((1, 2), np.float32), mutable=True)
    public = {name for name in dir(access) if not name.startswith("_")}
    assert public == {"shape", "dtype", "values", "values_mut", "zero", "close"}
    with pytest.raises(AttributeError):
        access.shape = (2, 1)
    with pytest.raises(AttributeError):
        access.anything = 1


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda one: type(one).__name__)
def test_contexts_are_frozen(context: object) -> None:
    for field in dataclasses.fields(context):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(context, field.name, None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(context, field.name)
    with pytest.raises((AttributeError, TypeError)):
        context.tokens = [1]
    assert not hasattr(context, "__dict__")


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda one: type(one).__name__)
def test_contexts_carry_names_and_counts_and_nothing_else(context: object) -> None:
    assert [field.name for field in dataclasses.fields(context)] == FIELDS[type(context)]
    public = {name for name in dir(context) if not name.startswith("_")}
    assert public - set(FIELDS[type(context)]) <= {"token_position"}
    for field in dataclasses.fields(context):
        value = getattr(context, field.name)
        assert type(value) in (int, str) or isinstance(value, enum.StrEnum) or type(value) in FIELDS


def test_the_position_is_known_where_one_token_is_evaluated() -> None:
    one = dataclasses.replace(EXECUTION, start_position=5, input_token_count=1, sequence_length=6)
    assert (one.token_position(), EXECUTION.token_position()) == (5, None)
    first = dataclasses.replace(EXECUTION, input_token_count=1, sequence_length=1)  # a prompt of one token
    assert (first.phase, first.token_position()) == (ExecutionPhase.PREFILL, 0)


def test_the_small_enums() -> None:
    assert list(ExecutionPhase) == ["prefill", "decode"]
    assert list(TracingState) == ["disabled", "enabled"]
    assert set(ModelFamily) == {"gpt2", "llama", "qwen2", "qwen3", "gemma3", "gemma4"}
