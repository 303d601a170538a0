"""What the sites mean in each family, on what hooks are shown: sums to the bit, post-norms, embedding, softcap."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember
from ember.engine.backend import Backend
from ember.hooks import TensorAccess
from ember.hooks.zero_layer_output import ZeroLayerOutput
from ember.model import Model
from ember.models import gemma4
from tests.ember.hooks.watchers import PER_LAYER, Watcher
from tests.foundry.families import Tiny, family_tensors, tiny_family
from tests.foundry.families_cases import PLAIN

PROMPT = [9, 17, 30, 12, 5, 44, 101, 8, 77]
WITHOUT_PLE = Tiny("gemma4", sliding=(True, True, False), window=4, ple=0, without_v=(2,), context=64)
CAP = 20.0
Rows = list[np.ndarray]


def tensors_of(tiny: Tiny) -> dict[str, np.ndarray]:
    return {name: stored for name, stored, _ in family_tensors(tiny)}


def watched(model: Model, act: Callable[..., None] | None = None) -> tuple[Watcher, Watcher]:
    """Watch a prefill and two decode evaluations, before and after `act`."""
    first, last = Watcher("first", act=act), Watcher("last")
    model.generate(tokens=PROMPT, max_tokens=3, stop_at_eos=False, experiments=[first, last])
    return first, last


def evaluations(watcher: Watcher, n_layers: int) -> list[tuple[int, Rows]]:
    """For each evaluation and layer, the layer and its four tensors in firing order."""
    by_site = [watcher.at(site) for site in PER_LAYER]
    assert len(by_site[0]) == 3 * n_layers
    return [(calls[0].layer, [call.values for call in calls]) for calls in zip(*by_site, strict=True)]


def perturb(hook: str, context: object, tensor: TensorAccess) -> None:
    """Change every tensor of every layer somehow."""
    if hook in PER_LAYER:
        values = tensor.values_mut()
        values *= np.float32(0.75)
        values[:, 0] += 1


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "gemma4"])
@pytest.mark.parametrize("act", [None, perturb])
def test_a_layer_adds_what_its_hooks_show(opened, route: str, name: str, act: Callable[..., None] | None) -> None:
    """Incoming + attention + MLP = outgoing, to the bit, in the prefill and while decoding, changed or not."""
    model = opened(name, route)
    first, last = watched(model, act)
    shown, left = (evaluations(watcher, model.n_layers) for watcher in (first, last))
    for (_, before), (layer, after) in zip(shown, left, strict=True):
        incoming, attention, mlp, _ = after
        assert np.array_equal((incoming + attention) + mlp, before[3]), layer


def test_a_layer_gives_the_next_what_it_leaves(any_family: Model) -> None:
    first, last = watched(any_family, perturb)
    shown, left = (evaluations(watcher, any_family.n_layers) for watcher in (first, last))
    for (layer, before), (_, after) in zip(shown[1:], left, strict=False):
        if layer:
            assert np.array_equal(before[0], after[3])


@pytest.mark.parametrize("act", [None, perturb])
def test_a_layer_of_gemma4_scales_the_sum(tmp_path: Path, route: str, act: Callable[..., None] | None) -> None:
    path = tiny_family(tmp_path / "m.gguf", WITHOUT_PLE)
    tensors = tensors_of(WITHOUT_PLE)
    with ember.open(path, route=route, threads=1) as model:
        first, last = watched(model, act)
        shown, left = (evaluations(watcher, model.n_layers) for watcher in (first, last))
    for (layer, before), (_, (incoming, attention, mlp, _)) in zip(shown, left, strict=True):
        scale = tensors[f"blk.{layer}.layer_output_scale.weight"][0]
        assert np.array_equal(((incoming + attention) + mlp) * scale, before[3])


class Recording:
    """A backend that notes what one of its RMS norms gives, and is another one otherwise."""

    def __init__(self, backend: Backend, role: str, given: Rows) -> None:
        self._backend, self._role, self._given = backend, role, given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def rms_norm(self, x: np.ndarray, weight: np.ndarray, eps: float, role: str) -> np.ndarray:
        found = self._backend.rms_norm(x, weight, eps, role)
        if role == self._role:
            self._given.append(found.copy())
        return found


@pytest.mark.parametrize("act", [None, perturb])
def test_a_layer_of_gemma4_adds_its_embedding_before_the_scale(
    opened, route: str, monkeypatch: pytest.MonkeyPatch, act: Callable[..., None] | None
) -> None:
    """The per-layer embedding's contribution is what the backend gives for the norm called `post_norm`."""
    model = opened("gemma4", route)
    layer, added = gemma4.layer, []

    def recorded(be: Backend, *given: Any) -> np.ndarray:
        return layer(Recording(be, "post_norm", added), *given)

    monkeypatch.setattr(gemma4, "layer", recorded)
    first, last = watched(model, act)
    shown, left = (evaluations(watcher, model.n_layers) for watcher in (first, last))
    scales = [tensors_of(PLAIN["gemma4"])[f"blk.{i}.layer_output_scale.weight"][0] for i in range(model.n_layers)]
    assert len(added) == len(shown) == 3 * model.n_layers
    for (layer, before), (_, (incoming, attention, mlp, _)), own in zip(shown, left, added, strict=True):
        assert own.any()
        assert np.array_equal((((incoming + attention) + mlp) + own) * scales[layer], before[3])


@pytest.mark.parametrize("name", ["gemma3", "gemma4"])
def test_contributions_of_gemma_are_those_after_the_post_norms(opened, route: str, name: str) -> None:
    """Divided by the norm's weight, a row has a mean square of 1: it went through that RMS norm, and nothing since."""
    model, tensors = opened(name, route), tensors_of(PLAIN[name])
    watcher, _ = watched(model)
    for site, norm in (("after_attention", "post_attention_norm"), ("after_mlp", "post_ffw_norm")):
        for call in watcher.at(site):
            normed = call.values.astype(np.float64) / tensors[f"blk.{call.layer}.{norm}.weight"]
            np.testing.assert_allclose(np.square(normed).mean(axis=-1), 1.0, rtol=2e-3)


def test_the_first_layer_gets_the_embedding(any_family: Model) -> None:
    name = any_family.architecture
    tiny, tensors = PLAIN[name], tensors_of(PLAIN[name])
    watcher, _ = watched(any_family)
    expected = tensors["token_embd.weight"][PROMPT]
    if name.startswith("gemma"):
        expected = expected * np.float32(tiny.d**0.5)
    if name == "gpt2":
        expected = expected + tensors["position_embd.weight"][: len(PROMPT)]
    assert np.array_equal(watcher.at("before_layer", "prefill")[0].values, expected)


def test_the_head_gets_the_last_token_after_the_final_norm(any_family: Model) -> None:
    watcher, _ = watched(any_family)
    tensors = tensors_of(PLAIN[any_family.architecture])
    outgoing = watcher.at("after_layer")[any_family.n_layers - 1 :: any_family.n_layers]
    for hidden, left in zip(watcher.at("before_logits"), outgoing, strict=True):
        x = left.values[-1].astype(np.float64)
        if any_family.architecture == "gpt2":
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
            expected = x * tensors["output_norm.weight"] + tensors["output_norm.bias"]
        else:
            eps = PLAIN[any_family.architecture].eps
            expected = x / np.sqrt(np.square(x).mean() + eps) * tensors["output_norm.weight"]
        np.testing.assert_allclose(hidden.values[0], expected, rtol=1e-4, atol=1e-5)


def test_logits_are_those_after_the_softcap(any_family: Model) -> None:
    tensors = tensors_of(PLAIN[any_family.architecture])
    head = tensors.get("output.weight", tensors["token_embd.weight"]).astype(np.float64)
    watcher, _ = watched(any_family)
    for hidden, logits in zip(watcher.at("before_logits"), watcher.at("after_logits"), strict=True):
        raw = head @ hidden.values[0].astype(np.float64)
        capped = any_family.architecture.startswith("gemma")
        assert PLAIN[any_family.architecture].softcap == (CAP if capped else None)
        expected = CAP * np.tanh(raw / CAP) if capped else raw
        np.testing.assert_allclose(logits.values[0], expected, rtol=1e-4, atol=1e-4)
        if capped:
            assert np.abs(logits.values).max() <= CAP
            assert np.abs(raw - expected).max() > 1e-2  # the cap is seen


def test_a_long_prompt_is_one_prefill(any_family: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts longer than a chunk of rows: the hook sees all rows at once, and the values of the unchunked run."""
    prompt = (np.arange(50) * 7 % 250).tolist()
    whole = Watcher()
    made = any_family.generate(tokens=prompt, max_tokens=3, experiments=[whole])
    monkeypatch.setattr("ember.engine.prefill.CHUNK_ROWS", 16)
    chunked = Watcher()
    assert any_family.generate(tokens=prompt, max_tokens=3, experiments=[chunked]).token_ids == made.token_ids
    assert [call.hook for call in chunked.calls] == [call.hook for call in whole.calls]
    for mine, theirs in zip(chunked.calls, whole.calls, strict=True):
        assert mine.context == theirs.context
        if mine.hook in PER_LAYER and mine.phase == "prefill":
            assert len(mine.values) == 50
        if mine.values is not None:
            assert np.array_equal(mine.values, theirs.values)
    # without a hook the same rows go through in chunks, and agree
    free = any_family.capture(tokens=[prompt], position="all")["after_layer"]
    shown = np.stack([call.values for call in chunked.at("after_layer", "prefill")], axis=1)
    np.testing.assert_allclose(free, shown, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("output", ["attention", "mlp"])
@pytest.mark.parametrize("layer", [0, -1])
def test_a_zeroed_output_is_that_of_a_model_without_its_last_matrix(
    any_family: Model, tmp_path: Path, output: str, layer: int
) -> None:
    """The same file with zeros for the output projection (and its bias) gives the same bits as the experiment."""
    name, at = any_family.architecture, layer % any_family.n_layers
    matrix = f"blk.{at}." + {"attention": "attn_output", "mlp": "ffn_down"}[output]
    zeros = {f"{matrix}.weight": np.zeros_like} | ({f"{matrix}.bias": np.zeros_like} if name == "gpt2" else {})
    sites = ["after_layer", "after_attention", "after_mlp"]
    cut = ZeroLayerOutput(f"{layer}:{output}")
    found = any_family.capture(tokens=[PROMPT], site=sites, position="all", experiments=[cut], observe="after")
    again = ZeroLayerOutput(f"{layer}:{output}")
    made = any_family.generate(tokens=PROMPT, max_tokens=6, stop_at_eos=False, experiments=[again])
    path = tiny_family(tmp_path / "cut.gguf", PLAIN[name], edited=zeros)
    with ember.open(path, route=any_family.route, threads=1) as model:
        expected = model.capture(tokens=[PROMPT], site=sites, position="all")
        assert all(np.array_equal(found[site], expected[site]) for site in sites)
        assert model.generate(tokens=PROMPT, max_tokens=6, stop_at_eos=False).token_ids == made.token_ids
