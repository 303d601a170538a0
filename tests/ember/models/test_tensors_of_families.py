"""Every tensor of every family, removed and renamed in turn: one error that names it, or its documented fallback."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFValueType as Value

import ember
from ember.errors import ModelError
from ember.gguf import open_gguf
from ember.models import read_model
from tests.foundry.families import Tiny, family_tensors
from tests.foundry.families_cases import PLAIN

Make = Callable[..., Path]
FALLBACKS = {
    "llama": {"output.weight"},
    "qwen2": {"output.weight"},
    "gemma4": {"blk.1.attn_v.weight"},
}
"""Tensors that a file may lack: an own head, and the values of a gemma4 layer that sees everything."""


def names_of(tiny: Tiny) -> list[str]:
    return [name for name, _, _ in family_tensors(tiny)]


def test_a_tensor_that_is_absent_is_named(family: str, make: Make, plain: dict[str, Tiny]) -> None:
    for name in names_of(plain[family]):
        path = make(family, without=(name,))
        if name in FALLBACKS.get(family, ()):
            read_model(open_gguf(path))
            continue
        with pytest.raises(ModelError) as caught:
            ember.open(path)
        assert f"{name}: absent, but a {family} model needs it" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_tensor_under_another_name_is_named(family: str, make: Make, plain: dict[str, Tiny]) -> None:
    """Nothing falls back silently: what took the tensor's place is left over, and said to be."""
    for name in names_of(plain[family]):
        other = name.replace("weight", "wieght").replace("bias", "bais")
        with pytest.raises(ModelError) as caught:
            ember.open(make(family, renamed={name: other}))
        assert name in str(caught.value) or other in str(caught.value)


def test_a_tensor_of_another_shape_is_named(family: str, make: Make, plain: dict[str, Tiny]) -> None:
    for name in names_of(plain[family]):
        if name == "token_embd.weight":
            continue  # says itself how large the vocabulary is
        longer = {name: lambda stored: np.concatenate([stored, stored[:1]])}
        with pytest.raises(ModelError) as caught:
            ember.open(make(family, edited=longer))
        assert name in str(caught.value)


@pytest.mark.parametrize("family", [name for name in PLAIN if name != "gemma4"])
def test_the_tensors_of_a_layer_too_many_are_named(family: str, make: Make) -> None:
    """gemma4's arrays are of another length then, which is named first."""
    last = PLAIN[family].n_layers - 1
    with pytest.raises(ModelError, match=rf"tensors that the {family} family does not use: blk\.{last}\."):
        ember.open(make(family, metadata={f"{family}.block_count": (Value.UINT32, last)}))


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3"])
def test_fused_q_k_and_v_are_the_rows_of_the_three(family: str, make: Make) -> None:
    """The converter can write one tensor; the numbers are the same bits, and the origin names it."""
    tensors = {name: stored for name, stored, _ in family_tensors(PLAIN[family])}

    def joined(fused: str) -> Callable[[np.ndarray], np.ndarray]:
        return lambda _: np.concatenate([tensors[fused.replace("qkv", part)] for part in "qkv"])

    one = replace(PLAIN[family], fused=True)
    edits = {name: joined(name) for name, _, _ in family_tensors(one) if "attn_qkv" in name}
    fused = make(one, "fused", edited=edits)
    assert np.array_equal(states(fused), states(make(family, "three")))
    with ember.open(fused, threads=1) as model:
        found = model.capture(tokens=[[9]], site="after_attention", layers=[0]).provenance["tensor_contract"]
    assert "blk.0.attn_qkv.weight" in found["sites"]["after_attention"]["0"]["tensors"]
    assert ("blk.0.attn_qkv.bias" in found["sites"]["after_attention"]["0"]["tensors"]) == (family == "qwen2")


def test_gemma4_values_are_the_raw_keys_where_a_layer_has_no_values(make: Make) -> None:
    """The same numbers with the keys written down as values, and others with values of its own."""
    tiny = Tiny("gemma4", n_layers=2, sliding=(True, False), head_dim=8, ple=0, context=64)
    tensors = {name: stored for name, stored, _ in family_tensors(tiny)}
    explicit = {"blk.1.attn_v.weight": lambda _: tensors["blk.1.attn_k.weight"]}
    absent = states(make(tiny, "a", without=("blk.1.attn_v.weight",)))
    assert np.array_equal(absent, states(make(tiny, "e", edited=explicit)))
    assert not np.allclose(absent, states(make(tiny, "o")), atol=1e-2)


def test_gemma4_decoys_change_nothing_and_are_reported(make: Make, plain: dict[str, Tiny]) -> None:
    decoyed = make(replace(plain["gemma4"], decoys=True), "d")
    assert np.array_equal(states(decoyed), states(make("gemma4", "p")))
    assert read_model(open_gguf(decoyed)).unused_tensors == tuple(
        sorted(f"blk.{layer}.attn_{name}.weight" for layer in (2, 3) for name in ("k", "v", "k_norm"))
    )


def test_a_head_of_its_own_is_used_and_a_tied_one_is_the_embedding(family: str, make: Make, plain) -> None:
    """N06."""
    own = make(replace(plain[family], tied=False), "own")
    tied = make(replace(plain[family], tied=False), "tied", without=("output.weight",))
    models = [ember.open(path, route="reference", threads=1) for path in (own, tied)]
    assert [model.card.tied_head for model in models] == [False, True]
    sites = [model.capture(tokens=[[9, 10, 11]], site=["before_logits", "after_logits"]) for model in models]
    assert np.array_equal(sites[0]["before_logits"], sites[1]["before_logits"])
    assert np.abs(sites[0]["after_logits"] - sites[1]["after_logits"]).max() > 0.1
    for model, found, name in zip(models, sites, ("output.weight", "token_embd.weight"), strict=True):
        cap = 20.0 if family.startswith("gemma") else 0.0
        plain_logits = found["before_logits"] @ model.file.view(name).T
        expected = cap * np.tanh(plain_logits / cap) if cap else plain_logits
        np.testing.assert_allclose(found["after_logits"], expected, rtol=1e-4, atol=1e-4)


def states(path: Path) -> np.ndarray:
    with ember.open(path, route="reference", threads=1) as model:
        return model.capture(tokens=[[9, 17, 30, 12, 5, 44, 101]], site="after_layer", layers="all")["after_layer"]
