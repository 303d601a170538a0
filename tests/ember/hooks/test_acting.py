"""Experiments that change values: what follows sees it, captures say which side, and what is zeroed is gone."""

import numpy as np
import pytest

from ember.errors import InputError
from ember.hooks import TensorAccess
from ember.hooks.zero_layer_output import ZeroLayerOutput
from ember.model import Model
from ember.work import CaptureWork, InterventionWork, UnitWork
from tests.ember.hooks.watchers import PER_LAYER, TENSOR_HOOKS, Nothing, Watcher

PROMPT = [9, 17, 30, 12, 5, 44, 101, 8, 77]
SITE = {"attention": "after_attention", "mlp": "after_mlp", "layer": "after_layer"}


def doubled(hook: str, layer: int) -> Watcher:
    def act(at: str, context: object, tensor: TensorAccess) -> None:
        if at == hook and getattr(context, "layer", -1) == layer:
            tensor.values_mut()[...] *= 2

    return Watcher("doubled", act=act)


@pytest.mark.parametrize("output", SITE)
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_zeroing_in_every_evaluation(model: Model, output: str, layer: int) -> None:
    watcher = Watcher()
    model.generate(
        tokens=PROMPT, max_tokens=3, stop_at_eos=False, experiments=[ZeroLayerOutput(f"{layer}:{output}"), watcher]
    )
    for phase, count in (("prefill", 1), ("decode", 2)):
        at = layer % model.n_layers
        shown = [call for call in watcher.at(SITE[output], phase) if call.layer == at]
        assert len(shown) == count
        assert all(not call.values.any() for call in shown)
        for site in SITE.values():
            for call in watcher.at(site, phase):
                untouched = site != SITE[output] or call.layer != at
                # after a residual stream of zeros, a layer without biases has nothing to add
                if untouched and not (output == "layer" and call.layer > at):
                    assert call.values.any()


@pytest.mark.parametrize("output", ["attention", "mlp"])
def test_a_zeroed_contribution_leaves_the_residual_stream_as_it_was(opened, route: str, output: str) -> None:
    """On a family without per-layer embeddings or scale: the other contribution alone is added."""
    model = opened("qwen3", route)
    watcher = Watcher()
    model.generate(tokens=PROMPT, max_tokens=3, experiments=[ZeroLayerOutput(f"1:{output}"), watcher])
    incoming, attention, mlp, outgoing = ([c for c in watcher.at(site) if c.layer == 1] for site in PER_LAYER)
    for before, a, m, after in zip(incoming, attention, mlp, outgoing, strict=True):
        other = m if output == "attention" else a
        assert np.array_equal(before.values + other.values, after.values)


@pytest.mark.parametrize("site", TENSOR_HOOKS)
def test_captures_before_and_after_what_acts_at_their_site(model: Model, site: str) -> None:
    layer = -1 if site.endswith("logits") else 0
    clean = model.capture(tokens=[PROMPT], site=site, position="last")[site]
    before, after = (
        model.capture(tokens=[PROMPT], site=site, experiments=[doubled(site, layer)], observe=side)[site]
        for side in ("before", "after")
    )
    if layer < 0:
        assert np.array_equal(before, clean)
        assert np.array_equal(after, 2 * clean)
    else:
        assert np.array_equal(before[:, : layer + 1], clean[:, : layer + 1])
        assert np.array_equal(after[:, layer], 2 * clean[:, layer])
        assert np.array_equal(after[:, :layer], clean[:, :layer])
        # deeper layers see what was done
        assert np.array_equal(before[:, layer + 1 :], after[:, layer + 1 :])
        assert not np.array_equal(after[:, layer + 1 :], clean[:, layer + 1 :])


@pytest.mark.parametrize("side", ["before", "after"])
def test_captures_of_generated_steps_before_and_after(model: Model, side: str) -> None:
    """In the decode evaluations too: what doubles the attention of layer 1 is seen on one side only."""
    work = UnitWork(
        (np.array(PROMPT, np.int32),),
        (CaptureWork("after_attention", (1,), ((),), observe=side, step=-1),),
        max_tokens=3,
    )
    watcher, acting = Watcher(), doubled("after_attention", 1)
    together = [watcher, acting] if side == "before" else [acting, watcher]
    (rows,) = model.run_unit(work, [together]).captures
    shown = [call.values[0] for call in watcher.at("after_attention", "decode") if call.layer == 1]
    assert np.array_equal(rows[0], np.stack(shown))


def test_experiments_act_in_the_order_of_the_list(model: Model) -> None:
    seen = [Watcher("first"), Watcher("second"), Watcher("third")]
    zero, double = ZeroLayerOutput("0:mlp"), doubled("after_mlp", 1)
    model.generate(tokens=PROMPT, max_tokens=1, experiments=[seen[0], zero, seen[1], double, seen[2]])
    values = [[call.values for call in watcher.at("after_mlp")] for watcher in seen]
    assert values[0][0].any()
    assert not values[1][0].any()
    assert np.array_equal(values[1][1] * 2, values[2][1])
    assert np.array_equal(values[0][1], values[1][1])


def test_interventions_act_before_experiments(model: Model) -> None:
    one = InterventionWork("scale", "after_layer", (0,), ((0, 2),), strength=0.5)
    clean, watcher = Watcher(), Watcher()
    model.capture(tokens=[PROMPT], experiments=[clean])
    found = model.capture(
        tokens=[PROMPT], experiments=[watcher, ZeroLayerOutput("0:layer")], interventions=[one], observe="before",
        layers=[0], position="all",
    )  # fmt: skip
    expected = clean.at("after_layer")[0].values.copy()
    assert np.array_equal(found["after_layer"][:, 0], expected)  # captures `before` come before both
    expected[[0, 2]] *= np.float32(0.5)
    assert np.array_equal(watcher.at("after_layer")[0].values, expected)


def test_a_mutating_experiment_beside_a_capture_must_say_observe(model: Model) -> None:
    for given in (Nothing, Nothing(), ZeroLayerOutput("0:mlp")):
        with pytest.raises(InputError, match="captures next to an intervention or an experiment that changes values"):
            model.capture(tokens=[PROMPT], experiments=[given])
    with pytest.raises(InputError, match=r"observe 'beside': expected 'before' or 'after'"):
        model.capture(tokens=[PROMPT], experiments=[Nothing], observe="beside")
    model.capture(tokens=[PROMPT], experiments=[Watcher])  # it only looks
    model.capture(tokens=[PROMPT], experiments=[Nothing], observe="after")


def test_what_an_experiment_does_is_gone_when_it_is_gone(model: Model) -> None:
    before = model.capture(tokens=[PROMPT], site=list(PER_LAYER), position="all")
    model.capture(tokens=[PROMPT], experiments=[ZeroLayerOutput("0:layer")], observe="after")
    model.generate(tokens=PROMPT, max_tokens=3, experiments=[ZeroLayerOutput("1:attention")])
    after = model.capture(tokens=[PROMPT], site=list(PER_LAYER), position="all")
    assert all(np.array_equal(before[site], after[site]) for site in PER_LAYER)
