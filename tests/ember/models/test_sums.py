"""The sites add up to the bit, in every family and on both routes: what is captured is what the model used."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ember
from tests.foundry.families import Tiny, family_tensors
from tests.foundry.families_cases import PLAIN
from tests.foundry.tiny import tiny_llama

Make = Callable[..., Path]
SITES = ["before_layer", "after_attention", "after_mlp", "after_layer"]
TOKENS = [[9, 17, 30, 12, 5, 44, 101, 8, 77], [9, 17, 30, 200], [250]]
WITHOUT_PLE = Tiny("gemma4", sliding=(True, True, False), window=4, ple=0, without_v=(2,), context=64)


@pytest.fixture(params=["reference", "fast"])
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def captured(path: Path, route: str) -> list[np.ndarray]:
    """Each site at every position: [rows, layers, width]."""
    with ember.open(path, route=route, threads=1) as model:
        found = model.capture(tokens=TOKENS, site=SITES, layers="all", position="all")
        return [found[site] for site in SITES]


@pytest.mark.parametrize("plain_family", [name for name in PLAIN if name != "gemma4"])
def test_a_layer_adds_what_its_sites_show(plain_family: str, route: str, make: Make) -> None:
    incoming, attention, mlp, outgoing = captured(make(plain_family), route)
    assert np.array_equal((incoming + attention) + mlp, outgoing)
    assert np.array_equal(incoming[:, 1:], outgoing[:, :-1])


def test_a_layer_of_gemma4_scales_the_sum(route: str, make: Make) -> None:
    incoming, attention, mlp, outgoing = captured(make(WITHOUT_PLE), route)
    scales = [stored[0] for name, stored, _ in family_tensors(WITHOUT_PLE) if "layer_output_scale" in name]
    assert np.array_equal(((incoming + attention) + mlp) * np.array(scales, np.float32)[:, None], outgoing)
    assert np.array_equal(incoming[:, 1:], outgoing[:, :-1])


def test_the_first_layer_gets_the_embedding_scaled_or_with_its_position(family: str, route: str, make: Make) -> None:
    path = make(family)
    tensors = {name: stored for name, stored, _ in family_tensors(PLAIN[family])}
    expected = np.concatenate([tensors["token_embd.weight"][ids] for ids in TOKENS])
    if family.startswith("gemma"):
        expected = expected * np.float32(PLAIN[family].d ** 0.5)
    if family == "gpt2":
        expected = expected + np.concatenate([tensors["position_embd.weight"][: len(ids)] for ids in TOKENS])
    assert np.array_equal(captured(path, route)[0][:, 0], expected)


def test_routes_agree_at_every_position(family: str, make: Make) -> None:
    path = make(family)
    for reference, fast in zip(captured(path, "reference"), captured(path, "fast"), strict=True):
        scale = np.sqrt(np.square(reference).mean(-1, keepdims=True))
        assert (np.abs(reference - fast) / scale).max() < 2e-5


def check_contract(path: Path) -> None:
    with ember.open(path, threads=1) as model:
        found = model.capture(tokens=[[9]], site=[*SITES, "before_logits", "after_logits"], layers="all").provenance
        rows = [row for by_layer in found["tensor_contract"]["sites"].values() for row in by_layer.values()]
        named = {name for row in rows for name in (*row["tensors"], row["norm"]) if name}
        assert named == set(model.file.tensors) - set(model.card.unused_tensors)


def test_the_tensor_contract_names_every_tensor_that_is_used(family: str, make: Make) -> None:
    check_contract(make(family))


def test_the_tensor_contract_names_frequency_factors_too(tmp_path: Path) -> None:
    check_contract(tiny_llama(tmp_path / "m.gguf", rope_freqs=True))
