"""What acts on tensors while they run: operations by hand, sources, steps, scores, attention and the logit lens."""

import numpy as np
import pytest
import threadpoolctl

from ember.engine import prefill
from ember.engine.operations import apply
from ember.engine.runner import predictions, run_unit
from ember.engine.session import Session
from ember.gguf import open_gguf
from ember.models import bind_model
from ember.work import ALL_STEPS, AttentionWork, CaptureWork, Continuation, InterventionWork, NonFinite, UnitWork
from tests.foundry.families import Tiny, tiny_family
from tests.foundry.tiny import tiny_llama

RNG = np.random.default_rng(3)
PROMPT = RNG.integers(0, 300, 9).astype(np.int32)
OTHER = np.concatenate([PROMPT[:5], RNG.integers(0, 300, 4)]).astype(np.int32)
LAYERS = (0, 1, 2)
EVERYWHERE = (tuple(range(9)),)


class Opened:
    def __init__(self, path, route) -> None:
        file = open_gguf(path)
        self.bound = bind_model(file)
        self.session = Session.make(file, route, 1, 1 << 30, threadpoolctl.ThreadpoolController())

    def __call__(self, *prompts, **asked):
        with self.session.limits():
            return run_unit(self.bound, self.session.backend, UnitWork(prompts, **asked))


@pytest.fixture(scope="module", params=["reference", "fast"])
def model(request, tmp_path_factory):
    return Opened(tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf", seed=11), request.param)


def acting(operation, site="after_layer", layers=(1,), positions=((4,),), **rest) -> InterventionWork:
    return InterventionWork(operation, site, layers, positions, **rest)


def test_each_operation_by_hand() -> None:
    x, v = np.array([[1.0, 2.0, -4.0]], np.float32), np.array([[3.0, 0.0, 4.0]], np.float32)
    right = {
        "zero": [0, 0, 0],
        "scale": [0.5, 1, -2],
        "add": [2.5, 2, -2],
        "replace": [3, 0, 4],
        "interpolate": [2, 1, 0],
        # x·u = (3 - 16) / 5 = -2.6 along u = (.6, 0, .8); half of it taken away
        "project_out": [1 + 0.78, 2, -4 + 1.04],
    }
    for operation, values in right.items():
        found = apply(acting(operation, strength=0.5, vector=v), x, v)
        np.testing.assert_allclose(found[0], values, rtol=1e-6)
    assert (apply(acting("project_out", vector=v), x, np.zeros_like(v)) == x).all()  # no direction, nothing to take


def states(model, *prompts, site="after_layer", observe="after", **asked):
    everywhere = tuple(tuple(range(len(p))) for p in prompts)
    return model(*prompts, captures=(CaptureWork(site, LAYERS, everywhere, observe=observe),), **asked).captures[0]


def test_an_operation_acts_at_its_own_layer_and_position_and_on_what_reads_them(model) -> None:
    plain, zeroed = states(model, PROMPT), states(model, PROMPT, interventions=(acting("zero"),))
    assert (zeroed[1, 4] == 0).all()
    differs = (plain != zeroed).any(axis=2)
    assert differs.tolist() == [[False] * 9, [False] * 4 + [True] + [False] * 4, [False] * 4 + [True] * 5]
    before = states(model, PROMPT, observe="before", interventions=(acting("zero"),))
    assert np.array_equal(before[1], plain[1])


def test_operations_act_in_the_order_of_the_plan(model) -> None:
    one = np.ones(model.bound.card.hidden_size, np.float32)
    add, zero = acting("add", vector=one, strength=2.0), acting("zero")
    assert (states(model, PROMPT, interventions=(zero, add))[1, 4] == 2).all()
    assert (states(model, PROMPT, interventions=(add, zero))[1, 4] == 0).all()


def test_rows_of_another_run_give_it_back_bit_for_bit(model) -> None:
    plain = states(model, PROMPT)
    back = acting("replace", positions=((4,),), rows=plain[1:2, 4:5])
    assert np.array_equal(states(model, PROMPT, interventions=(acting("zero"), back)), plain)


@pytest.mark.parametrize("size", [4096, 4])
def test_a_capture_of_the_same_run_is_a_source(model, monkeypatch, size) -> None:
    monkeypatch.setattr(prefill, "CHUNK_ROWS", size)
    first = (CaptureWork("after_layer", (0,), ((7,),)), CaptureWork("after_layer", (0,), ((0, 1),), pooled=True))
    copied = model(
        PROMPT,
        captures=(*first, CaptureWork("after_layer", LAYERS, EVERYWHERE)),
        interventions=(
            acting("replace", positions=((2, 3),), capture=0, capture_layer=0),
            acting("replace", positions=((5,),), capture=1, capture_layer=0),
        ),
    ).captures
    assert (copied[2][1, 2] == copied[2][0, 7]).all()
    assert (copied[2][1, 3] == copied[2][0, 7]).all()
    np.testing.assert_allclose(copied[2][1, 5], copied[2][0, :2].mean(axis=0), rtol=1e-6, atol=1e-6)


def test_generated_steps_are_the_states_of_the_tokens_fed(model) -> None:
    made = model(
        PROMPT,
        OTHER,
        max_tokens=4,
        captures=(
            CaptureWork("after_layer", LAYERS, ((), ()), step=ALL_STEPS),
            CaptureWork("after_logits", (-1,), ((), ()), step=1, on_steps=(False, True)),
        ),
    )
    assert [c.shape[:2] for c in made.captures] == [(3, 6), (1, 1)]
    for number, prompt in enumerate((PROMPT, OTHER)):
        fed = np.concatenate([prompt, made.produced[number].token_ids[:3]]).astype(np.int32)
        whole = states(model, fed)[:, len(prompt) :]
        np.testing.assert_allclose(made.captures[0][:, 3 * number : 3 * number + 3], whole, rtol=1e-4, atol=1e-4)
    ends = ((len(OTHER) + 1,),)
    fed = np.concatenate([OTHER, made.produced[1].token_ids[:2]]).astype(np.int32)
    logits = model(fed, captures=(CaptureWork("after_logits", (-1,), ends),)).captures[0]
    np.testing.assert_allclose(made.captures[1], logits, rtol=1e-4, atol=1e-4)


def test_steps_are_acted_on_while_decoding(model) -> None:
    vocab, banned = model.bound.card.vocab_size, np.zeros(model.bound.card.vocab_size, np.float32)
    banned[7] = 1e9
    forced = InterventionWork("add", "after_logits", (-1,), ((),), ((1, 2),), vector=banned)
    plain = model(PROMPT, max_tokens=5).produced[0].token_ids
    found = model(PROMPT, max_tokens=5, interventions=(forced,)).produced[0].token_ids
    assert found[:2] == plain[:2]
    assert found[2:4] == (7, 7)
    assert vocab > 7


def test_a_value_that_is_not_finite_while_decoding_names_its_layer(model) -> None:
    wrong = np.full(model.bound.card.hidden_size, np.nan, np.float32)
    broken = InterventionWork("replace", "after_attention", (1,), ((), ()), ((2,), ()), vector=wrong)
    found = model(PROMPT, OTHER, max_tokens=5, interventions=(broken,))
    assert found.failures == {0: NonFinite(1, "after_layer")}
    assert found.produced[1] == model(PROMPT, OTHER, max_tokens=5).produced[1]


@pytest.mark.parametrize("where", ["prompt", "step"])
def test_a_value_that_is_not_finite_after_the_final_norm_names_its_site(model, where) -> None:
    wrong = np.full(model.bound.card.hidden_size, np.inf, np.float32)
    at, steps = (((8,), ()), ()) if where == "prompt" else (((), ()), ((1,), ()))
    broken = InterventionWork("replace", "before_logits", (-1,), at, steps, vector=wrong)
    found = model(PROMPT, OTHER, max_tokens=5, interventions=(broken,))
    assert found.failures == {0: NonFinite(-1, "before_logits")}
    assert found.produced[1] == model(PROMPT, OTHER, max_tokens=5).produced[1]


@pytest.mark.parametrize(
    ("site", "value"), [("before_logits", np.nan), ("after_logits", np.nan), ("after_logits", np.inf)]
)
def test_captured_states_of_the_head_are_finite_or_their_prompt_fails(model, site, value) -> None:
    """Nothing is generated or scored here that would stumble over them."""
    card = model.bound.card
    wrong = np.zeros(card.hidden_size if site == "before_logits" else card.vocab_size, np.float32)
    wrong[3] = value
    broken = InterventionWork("replace", site, (-1,), ((8,), ()), vector=wrong)
    look = CaptureWork("after_logits", (-1,), ((8,), (8,)))
    found = model(PROMPT, OTHER, captures=(look,), interventions=(broken,))
    assert found.failures == {0: NonFinite(-1, site)}
    assert np.array_equal(found.captures[0][0, 1], model(PROMPT, OTHER, captures=(look,)).captures[0][0, 1])


def test_masked_logits_are_captured_and_a_mask_of_everything_is_not(model) -> None:
    mask = np.full(model.bound.card.vocab_size, -np.inf, np.float32)
    look = CaptureWork("after_logits", (-1,), ((8,),))
    for kept, failed in ((5, {}), (None, {0: NonFinite(-1, "after_logits")})):
        if kept is not None:
            mask[kept] = 0
        masked = InterventionWork("add", "after_logits", (-1,), ((8,),), vector=mask)
        found = model(PROMPT, captures=(look,), interventions=(masked,))
        assert found.failures == failed
        assert np.isfinite(found.captures[0]).sum() == (kept is not None)
        mask[:] = -np.inf


def test_scores_and_top_tokens_are_those_of_the_logits(model) -> None:
    continuations = [Continuation(0, (5, 9, 2)), Continuation(1, (1,)), Continuation(0, (5, 9, 3, 3))]
    found = model(PROMPT, OTHER, continuations=tuple(continuations), top_k=4)
    for one, score in zip(continuations, found.scores, strict=True):
        prompt = (PROMPT, OTHER)[one.prompt]
        fed = np.concatenate([prompt, one.tokens[:-1]]).astype(np.int32)
        places = (tuple(range(len(prompt) - 1, len(fed))),)
        logits = model(fed, captures=(CaptureWork("after_logits", (-1,), places),)).captures[0][0].astype(np.float64)
        chosen = logits[np.arange(len(logits)), one.tokens]
        right = chosen - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) - logits.max(1)
        np.testing.assert_allclose(score.log_probabilities, right, rtol=1e-4, atol=1e-5)
        assert score.ranks == tuple((1 + (logits > chosen[:, None]).sum(1)).tolist())
    ends = ((8,), (8,))
    logits = model(PROMPT, OTHER, captures=(CaptureWork("after_logits", (-1,), ends),)).captures[0][0]
    assert [one.token_ids for one in found.top] == [tuple(np.argsort(-row, kind="stable")[:4]) for row in logits]


def test_attention_weights_rebuild_the_contribution_of_attention(tmp_path) -> None:
    """Layer 0 of a GPT-2 by hand, in float64: weights times values, through the output projection."""
    path = tiny_family(tmp_path / "g.gguf", Tiny("gpt2", n_layers=2, d=48, ffn=96))
    model = Opened(path, "reference")
    found = model(
        PROMPT,
        captures=(CaptureWork("before_layer", (0,), EVERYWHERE), CaptureWork("after_attention", (0,), ((8,),))),
        attention=(AttentionWork((0, 1), ((0, 8),)),),
    )
    first, last = found.attention[0]
    assert (first == 1).all()  # the first position sees itself only
    assert last.shape == (2, model.bound.config.n_heads, 9)
    np.testing.assert_allclose(last.sum(axis=2), 1, rtol=1e-6)
    file = open_gguf(path)
    tensor = {name: file.view(name).astype(np.float64) for name in file.tensors if name.startswith("blk.0.attn")}
    x = found.captures[0][0].astype(np.float64)  # [9, D]
    h = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + model.bound.config.norm_eps)
    h = h * tensor["blk.0.attn_norm.weight"] + tensor["blk.0.attn_norm.bias"]
    v = (h @ tensor["blk.0.attn_qkv.weight"].T + tensor["blk.0.attn_qkv.bias"])[:, 96:]  # [9, D]
    mixed = np.einsum("hp,phe->he", last[0], v.reshape(9, model.bound.config.n_heads, -1)).reshape(-1)
    right = mixed @ tensor["blk.0.attn_output.weight"].T + tensor["blk.0.attn_output.bias"]
    np.testing.assert_allclose(found.captures[1][0, 0], right, rtol=1e-4, atol=1e-5)


def test_attention_weights_outside_a_window_are_zero(tmp_path) -> None:
    path = tiny_family(tmp_path / "w.gguf", Tiny("gemma3", n_layers=2, window=4, sliding=(True, False)))
    (row,) = Opened(path, "fast")(PROMPT, attention=(AttentionWork((0, 1), ((8,),)),)).attention[0]
    assert (row[0, :, :5] == 0).all()
    assert (row[0, :, 5:] > 0).all()
    assert (row[1] > 0).all()


def test_the_lens_of_the_last_layer_is_the_models_own_prediction(model) -> None:
    end = ((8,),)
    asked = (CaptureWork("after_layer", (2,), end), CaptureWork("after_logits", (-1,), end))
    found = model(PROMPT, captures=asked, top_k=5)
    with model.session.limits():
        (lens,) = predictions(model.bound, model.session.backend, found.captures[0][0], 5)
    assert lens.token_ids == found.top[0].token_ids
    np.testing.assert_allclose(lens.log_probabilities, found.top[0].log_probabilities, rtol=1e-5, atol=1e-6)
