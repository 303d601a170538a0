"""Every metadata key of every family, removed in turn: an error that names it, or its documented default."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType as Value

import ember
from ember.errors import EmberError, ModelError, UnsupportedError
from ember.gguf import open_gguf
from ember.models import read_model
from tests.foundry.families import Tiny, family_keys
from tests.foundry.families_cases import PLAIN

Make = Callable[..., Path]
COMMON = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
)
REQUIRED: dict[str, tuple[str, ...]] = {
    "gpt2": (*COMMON[:5], "attention.layer_norm_epsilon"),
    "llama": COMMON,
    "qwen2": COMMON,
    "qwen3": COMMON,
    "gemma3": COMMON,
    "gemma4": (
        *COMMON,
        "attention.head_count_kv",
        "attention.key_length",
        "attention.key_length_swa",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "embedding_length_per_layer_input",
    ),
}
ROPE = {"rope.freq_base": 10000.0}
HEADS = {"attention.key_length": 8, "attention.value_length": 8}
OPTIONAL: dict[str, dict[str, Any]] = {
    # by key: the value in use where the file has none, which the card reports as defaulted
    "gpt2": {},
    "llama": {"attention.head_count_kv": 4, "rope.dimension_count": 8, "rope.scaling.factor": 1.0, **ROPE},
    "qwen2": {"attention.head_count_kv": 4, **ROPE},
    "qwen3": {"attention.head_count_kv": 4, **HEADS, **ROPE},
    "gemma3": {
        "attention.head_count_kv": 4,
        **HEADS,
        "attention.sliding_window": 0,
        "attention.sliding_window_pattern": 6,
        "rope.freq_base_swa": 10000.0,
        "rope.scaling.factor": 1.0,
        **ROPE,
    },
    "gemma4": {
        "attention.value_length": 16,
        "attention.value_length_swa": 8,
        "rope.freq_base_swa": 10000.0,
        "rope.dimension_count": 16,
        "final_logit_softcapping": 30.0,
        **ROPE,
    },
}
WITHOUT_DEFAULT = {
    # keys whose absence means that there is nothing of the kind, or whose default contradicts the plain file
    "llama": {"rope.scaling.type"},
    "gemma3": {"rope.scaling.type", "final_logit_softcapping"},
    "gemma4": {"attention.shared_kv_layers", "rope.dimension_count_swa"},
}


def named_keys(tiny: Tiny) -> set[str]:
    before = tiny.family + "."
    return {key.removeprefix(before) for key in family_keys(tiny) if key.startswith(before)}


def test_every_key_of_the_plain_files_is_in_a_table(family: str, plain: dict[str, Tiny]) -> None:
    tables = {*REQUIRED[family], *OPTIONAL[family], *WITHOUT_DEFAULT.get(family, set())}
    assert named_keys(plain[family]) == tables


def test_a_required_key_that_is_absent_is_named(family: str, make: Make) -> None:
    for key in REQUIRED[family]:
        path = make(family, metadata={f"{family}.{key}": None})
        with pytest.raises(ModelError) as caught:
            ember.open(path)
        assert f"{family}.{key}: absent, but a {family} model needs it" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_required_key_of_the_wrong_type_is_named(family: str, make: Make) -> None:
    for key in REQUIRED[family]:
        path = make(family, metadata={f"{family}.{key}": (Value.STRING, "many")})
        with pytest.raises(ModelError, match=f"{family}.{key}: found 'many'"):
            ember.open(path)


def test_a_required_count_of_zero_or_a_huge_one_is_named(family: str, make: Make) -> None:
    for key in REQUIRED[family]:
        values = (0.0, float("nan"), float("inf")) if key.endswith("epsilon") else (0, 2**31, 2**32 - 1)
        for value in values:
            if key == "embedding_length_per_layer_input" and value == 0:
                continue  # means that there are no such embeddings
            kind = Value.FLOAT32 if key.endswith("epsilon") else Value.UINT32
            path = make(family, metadata={f"{family}.{key}": (kind, value)})
            with pytest.raises(EmberError, match=key):
                ember.open(path)


def test_an_optional_key_that_is_absent_takes_its_documented_default(family: str, make: Make) -> None:
    for key, default in OPTIONAL[family].items():
        name = f"{family}.{key}"
        card = read_model(open_gguf(make(family, metadata={name: None})))
        assert card.defaulted[name] == default, name
        assert card.hyperparameters[name] == default, name


def test_a_default_is_the_same_as_the_value_written_down(family: str, make: Make) -> None:
    """An absent key and its default in the file give the same bits."""
    for key, default in OPTIONAL[family].items():
        name = f"{family}.{key}"
        kind = Value.FLOAT32 if isinstance(default, float) else Value.UINT32
        absent = make(family, "absent", metadata={name: None})
        written = make(family, "written", metadata={name: (kind, default)})
        assert np.array_equal(logits(absent), logits(written)), name


def test_the_plain_file_defaults_nothing_else(family: str, make: Make) -> None:
    """What the card calls defaulted is what the converter leaves out, with the family's vocabulary from the tensor."""
    names = {name.removeprefix(family + ".") for name in read_model(open_gguf(make(family))).defaulted}
    assert names <= {"vocab_size", "attention.key_length", "attention.value_length", "rope.dimension_count",
                     "rope.scaling.factor"}  # fmt: skip


def test_gemma4_without_shared_layers_key_wants_their_keys(make: Make) -> None:
    with pytest.raises(ModelError, match=r"blk\.2\.attn_k\.weight: absent"):
        ember.open(make("gemma4", metadata={"gemma4.attention.shared_kv_layers": None}))


def test_gemma4_windowed_heads_turn_as_wide_as_the_others_by_default(make: Make) -> None:
    """llama.cpp's default for `rope.dimension_count_swa` is `rope.dimension_count`, which does not fit here."""
    with pytest.raises(UnsupportedError, match="heads are 8 wide"):
        ember.open(make("gemma4", metadata={"gemma4.rope.dimension_count_swa": None}))


def test_a_head_size_that_is_absent_is_the_quotient(make: Make) -> None:
    """N04: the key decides where there is one, and the softmax's scale with it."""
    wide = Tiny("qwen3", n_layers=1, d=64, n_heads=4, n_kv=4, head_dim=32, context=64)
    card = read_model(open_gguf(make(wide)))
    assert card.hyperparameters["qwen3.attention.key_length"] == 32
    absent = {"qwen3.attention.key_length": None, "qwen3.attention.value_length": None}
    with pytest.raises(ModelError, match=r"attn_q\.weight: found shape \[128, 64\], expected \[64, 64\]"):
        ember.open(make(wide, metadata=absent))


@pytest.mark.parametrize("family", [name for name in PLAIN if name != "gemma4"])
def test_an_array_of_equal_values_counts_as_the_value(family: str, make: Make) -> None:
    """N05: arrays in the place of scalars (gemma4 has a test of its own)."""
    keys, scalar = family_keys(PLAIN[family]), logits(make(family, "scalar"))
    for key in ("attention.head_count_kv", "feed_forward_length"):
        if f"{family}.{key}" in keys:  # gpt2 has no groups
            _, value = keys[f"{family}.{key}"]
            equal = {f"{family}.{key}": (Value.INT32, [value] * PLAIN[family].n_layers)}
            assert np.array_equal(logits(make(family, "array", metadata=equal)), scalar), key


@pytest.mark.parametrize("key", ["attention.head_count_kv", "feed_forward_length", "attention.head_count"])
def test_an_array_of_different_values_is_refused_by_name(
    key: str, family: str, make: Make, plain: dict[str, Tiny]
) -> None:
    tiny = plain[family]
    _, value = family_keys(tiny).get(f"{family}.{key}", (None, 4))
    first = value[0] if isinstance(value, list) else value
    differing = [first] * (tiny.n_layers - 1) + [2 * first]
    with pytest.raises(EmberError, match=key if family != "gemma4" or key == "attention.head_count" else "blk"):
        ember.open(make(family, metadata={f"{family}.{key}": (Value.INT32, differing)}))


def test_gemma4_takes_scalars_where_layers_are_alike(make: Make) -> None:
    alike = Tiny("gemma4", n_layers=3, sliding=(True, False, True), head_dim=8, n_kv=2, ffn=48, ple=8, context=64)
    arrays = {
        "gemma4.attention.head_count_kv": (Value.INT32, [2, 2, 2]),
        "gemma4.feed_forward_length": (Value.INT32, [48, 48, 48]),
    }
    assert np.array_equal(logits(make(alike, "s")), logits(make(alike, "a", metadata=arrays)))


def test_an_array_of_the_wrong_length_is_refused_by_name(make: Make) -> None:
    for key in ("attention.head_count_kv", "feed_forward_length"):
        with pytest.raises(ModelError, match=key):
            ember.open(make("gemma4", metadata={f"gemma4.{key}": (Value.INT32, [2, 2])}))
    with pytest.raises(ModelError, match="sliding_window_pattern"):
        ember.open(make("gemma4", metadata={"gemma4.attention.sliding_window_pattern": (Value.BOOL, [True, False])}))


def test_a_pattern_of_flags_equals_the_number(make: Make) -> None:
    flags = make("gemma3", "f", metadata={"gemma3.attention.sliding_window_pattern": (Value.BOOL, [True, True, False])})
    assert np.array_equal(logits(flags), logits(make("gemma3", "n")))


CHANGING: tuple[tuple[str, tuple[Value, Any]], ...] = (
    ("expert_count", (Value.UINT32, 8)),
    ("attention.causal", (Value.BOOL, False)),
    ("logit_scale", (Value.FLOAT32, 0.5)),
    ("rope.scaling.type", (Value.STRING, "yarn")),
    ("rope.scaling.type", (Value.STRING, "longrope")),
)


def test_what_would_change_the_numbers_is_refused_by_name(family: str, make: Make) -> None:
    for key, pair in CHANGING:
        if family == "gpt2" and key.startswith("rope"):
            continue  # it has no rotary positions
        with pytest.raises(UnsupportedError, match=f"{family}.{key}"):
            ember.open(make(family, metadata={f"{family}.{key}": pair}))


def logits(path: Path) -> np.ndarray:
    with ember.open(path, route="reference", threads=1) as model:
        return model.logits(tokens=[[9, 17, 30, 12, 5, 44, 101, 8, 77]])
