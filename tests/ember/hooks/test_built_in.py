"""What the built-in experiments do with tensors shown to them directly."""

import hashlib
import json

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
    TracingState,
)
from ember.hooks.activation_stats import ActivationStats, describe
from ember.hooks.zero_layer_output import ZeroLayerOutput

MODEL = ModelContext(ModelFamily.LLAMA, None, "llama", 4, 3)
PREFILL = ExecutionContext(MODEL, ExecutionPhase.PREFILL, 0, 2, 2, TracingState.DISABLED)
DECODE = ExecutionContext(MODEL, ExecutionPhase.DECODE, 2, 1, 3, TracingState.DISABLED)


def test_a_tensor_is_described_by_hand_computed_figures() -> None:
    values = np.array([[3.0, -4.0, 0.0], [0.0, 12.0, 1.0]], np.float32)
    assert describe(values, first_position=5) == {
        "norm": pytest.approx(170**0.5, rel=1e-15),
        "mean": 2.0,
        "min": {"value": -4.0, "position": 5, "column": 1},
        "max": {"value": 12.0, "position": 6, "column": 1},
        "nonfinite": 0,
        "fingerprint": hashlib.sha256(values.tobytes()).hexdigest()[:16],
    }


def test_the_norm_is_taken_in_float64() -> None:
    values = np.full((1, 2), 3e30, np.float32)  # its square is infinite in float32
    assert describe(values)["norm"] == pytest.approx(float(np.float32(3e30)) * 2**0.5, rel=1e-12)


def test_extremes_are_the_first_of_equal_ones() -> None:
    found = describe(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], np.float32))
    assert (found["min"], found["max"]) == (
        {"value": 0.0, "position": 0, "column": 1},
        {"value": 1.0, "position": 0, "column": 0},
    )


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    found = describe(np.array([[np.nan, 2.0, -np.inf], [np.inf, -1.0, 2.0]], np.float32))
    assert (found["nonfinite"], found["norm"], found["mean"]) == (3, 3.0, 1.0)
    assert found["max"] == {"value": 2.0, "position": 0, "column": 1}
    assert found["min"] == {"value": -1.0, "position": 1, "column": 1}
    json.dumps(found, allow_nan=False)


def test_a_tensor_without_a_finite_value_has_no_figures() -> None:
    found = describe(np.full((1, 3), np.nan, np.float32))
    assert (found["norm"], found["mean"], found["min"], found["max"], found["nonfinite"]) == (*[None] * 4, 3)


def test_the_fingerprint_is_of_bits() -> None:
    zero = np.zeros((1, 4), np.float32)
    assert describe(zero)["fingerprint"] != describe(-zero)["fingerprint"]
    assert describe(zero)["fingerprint"] == "374708fff7719dd5"  # sha256 of sixteen zero bytes


def test_stats_have_a_record_for_every_tensor_shown() -> None:
    stats = ActivationStats()
    hidden = np.arange(6, dtype=np.float32).reshape(2, 3)
    for execution in (PREFILL, DECODE):
        rows = hidden[: execution.input_token_count]
        for site in ("before_layer", "after_attention", "after_mlp", "after_layer"):
            getattr(stats, site)(LayerContext(execution, 3), TensorAccess(rows, mutable=False))
        for site in ("before_logits", "after_logits"):
            getattr(stats, site)(execution, TensorAccess(hidden[1:], mutable=False))
    stats.on_generation_complete(GenerationContext(MODEL, 2, 2, 1, TracingState.DISABLED))
    found = stats.results()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["prompt_tokens"], found["generated_tokens"], len(found["records"])) == (2, 2, 12)
    keys = [(r["phase"], r["start_position"], r["site"], r["layer"], r["rows"]) for r in found["records"]]
    assert keys[3:6] == [
        ("prefill", 0, "after_layer", 3, 2),
        ("prefill", 0, "before_logits", -1, 1),
        ("prefill", 0, "after_logits", -1, 1),
    ]
    assert keys[6] == ("decode", 2, "before_layer", 3, 1)
    assert found["records"][0]["max"] == {"value": 5.0, "position": 1, "column": 2}
    assert found["records"][4]["max"] == {"value": 5.0, "position": 1, "column": 2}  # the last token of two
    assert found["records"][10]["max"]["position"] == 2


def test_what_was_given_out_does_not_change_afterwards() -> None:
    stats = ActivationStats()
    stats.before_logits(PREFILL, TensorAccess(np.ones((1, 3), np.float32), mutable=False))
    first = stats.results()
    stats.after_logits(PREFILL, TensorAccess(np.ones((1, 3), np.float32), mutable=False))
    assert (len(first["records"]), len(stats.results()["records"])) == (1, 2)


@pytest.mark.parametrize(("spec", "layer"), [("0", 0), ("3", 3), ("-1", 3), ("-4", 0)])
@pytest.mark.parametrize(
    ("output", "site"), [("attention", "after_attention"), ("mlp", "after_mlp"), ("layer", "after_layer")]
)
def test_only_the_named_output_of_the_named_layer_is_zeroed(spec: str, layer: int, output: str, site: str) -> None:
    experiment = ZeroLayerOutput(f"{spec}:{output}")
    experiment.on_model_loaded(MODEL)
    for execution in (PREFILL, DECODE):
        for at in range(MODEL.n_layers):
            for hook in ("before_layer", "after_attention", "after_mlp", "after_layer"):
                values = np.ones((execution.input_token_count, 3), np.float32)
                getattr(experiment, hook)(LayerContext(execution, at), TensorAccess(values, mutable=True))
                assert values.any() == (hook != site or at != layer)


@pytest.mark.parametrize("spec", ["4", "-5", "1000"])
def test_a_layer_that_the_model_does_not_have_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match=rf"layer {spec} does not exist: the model has 4 layers; use 0 to 3, or -1 to"):
        ZeroLayerOutput(f"{spec}:mlp").on_model_loaded(MODEL)


@pytest.mark.parametrize(
    "spec", ["", "3", "mlp", "3:", "3:Mlp", " 3:mlp", "3:mlp ", "3.0:mlp", "٣:mlp", "9" * 30 + ":mlp"]
)
def test_other_specs_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="expected LAYER:OUTPUT"):
        ZeroLayerOutput(spec)


def test_a_spec_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="found 3, expected LAYER:OUTPUT"):
        ZeroLayerOutput(3)
