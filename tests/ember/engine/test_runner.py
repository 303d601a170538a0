"""A unit through the engine: chunks, depth, pruning, the guard, values that are not finite."""

import numpy as np
import pytest
import threadpoolctl

from ember.engine import prefill
from ember.engine.runner import run_unit
from ember.engine.session import Session
from ember.gguf import open_gguf
from ember.models import bind_model
from ember.tolerances import TOLERANCES
from ember.work import CaptureWork, NonFinite, UnitWork
from tests.foundry.tiny import tiny_llama

LAYERS = (0, 1, 2)
RANDOM = np.random.default_rng(5)
OWN = [RANDOM.integers(0, 500, n).astype(np.int32) for n in (1, 3, 40, 70)]
PROMPTS = (*OWN, np.concatenate([OWN[3][:20], OWN[1]]))
"""Of 1 to 70 tokens; the last one shares 20 with the fourth."""
ENDS = tuple((len(p) - 1,) for p in PROMPTS)


class Opened:
    def __init__(self, path, route="fast") -> None:
        file = open_gguf(path)
        self.bound = bind_model(file)
        self.session = Session.make(file, route, 1, 1 << 30, threadpoolctl.ThreadpoolController())

    def __call__(self, work: UnitWork):
        with self.session.limits():
            return run_unit(self.bound, self.session.backend, work)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf", seed=11)


@pytest.fixture(params=["reference", "fast"])
def model(request, path):
    return Opened(path, request.param)


def close(a, b) -> float:
    return float((np.abs(a - b).max(-1) / np.sqrt(np.square(b).mean(-1))).max())


BOUND = TOLERANCES["fast_vs_reference"].bound


def test_routes_agree_at_every_site(path) -> None:
    sites = ("before_layer", "after_attention", "after_mlp", "after_layer")
    works = [CaptureWork(s, LAYERS, ENDS) for s in sites] + [
        CaptureWork(s, (-1,), ENDS) for s in ("before_logits", "after_logits")
    ]
    work = UnitWork(PROMPTS, tuple(works), max_tokens=8)
    a, b = Opened(path, "fast")(work), Opened(path, "reference")(work)
    for x, y in zip(a.captures, b.captures, strict=True):
        assert close(x, y) < BOUND
    assert a.produced == b.produced


def test_the_sum_rule_holds_bit_for_bit(model) -> None:
    sites = ("before_layer", "after_attention", "after_mlp", "after_layer")
    everywhere = tuple(tuple(range(len(p))) for p in PROMPTS)
    incoming, attention, mlp, outgoing = model(
        UnitWork(PROMPTS, tuple(CaptureWork(s, LAYERS, everywhere) for s in sites))
    ).captures
    assert np.array_equal((incoming + attention) + mlp, outgoing)
    assert np.array_equal(incoming[1:], outgoing[:-1])


def test_a_unit_longer_than_a_chunk_gives_the_same_values(model, monkeypatch) -> None:
    # the AVX2 kernels change bits with the chunk, hence the tolerance; bits are tested where contract 2 holds
    everywhere = tuple(tuple(range(len(p))) for p in PROMPTS)
    work = UnitWork(
        PROMPTS,
        (
            CaptureWork("after_layer", LAYERS, everywhere),
            CaptureWork("after_layer", LAYERS, everywhere, pooled=True),
            CaptureWork("after_mlp", (2,), ENDS),
        ),
        max_tokens=5,
    )
    whole = model(work)
    monkeypatch.setattr(prefill, "CHUNK_ROWS", 17)
    cut = model(work)
    for a, b in zip(cut.captures, whole.captures, strict=True):
        assert a.shape == b.shape
        assert close(a, b) < BOUND
    assert cut.produced == whole.produced


def test_a_chunk_of_whose_rows_the_last_layer_keeps_none_is_passed_over(model, monkeypatch) -> None:
    rng = np.random.default_rng(5)
    prompts = tuple(rng.integers(0, 100, n).astype(np.int32) for n in (3, 60, 4))
    work = UnitWork(prompts, (CaptureWork("after_layer", LAYERS, tuple((len(p) - 1,) for p in prompts)),))
    whole = model(work).captures[0]
    monkeypatch.setattr(prefill, "CHUNK_ROWS", 17)
    assert close(model(work).captures[0], whole) < BOUND


def test_pooled_rows_are_means_of_the_rows_of_all_positions(model) -> None:
    everywhere = tuple(tuple(range(len(p))) for p in PROMPTS)
    rows, means = model(
        UnitWork(PROMPTS, tuple(CaptureWork("after_mlp", LAYERS, everywhere, pooled=p) for p in (False, True)))
    ).captures
    start = 0
    for i, prompt in enumerate(PROMPTS):
        wide = rows[:, start : start + len(prompt)].astype(np.float64)
        np.testing.assert_allclose(means[:, i], wide.mean(axis=1), rtol=1e-6, atol=1e-7)
        start += len(prompt)


@pytest.mark.parametrize(
    ("site", "layer", "depth"),
    [("after_layer", 0, 1), ("before_layer", 1, 1), ("before_layer", 0, 0), ("after_attention", 2, 3)],
)
def test_layers_beyond_the_deepest_one_needed_do_not_run(model, site, layer, depth, monkeypatch) -> None:
    full = model(UnitWork(PROMPTS, (CaptureWork(site, LAYERS, ENDS), CaptureWork("after_logits", (-1,), ENDS))))
    calls = []
    family = model.bound.family
    original = family.layer
    monkeypatch.setattr(family, "layer", lambda *args: calls.append(1) or original(*args))
    alone = model(UnitWork(PROMPTS, (CaptureWork(site, (layer,), ENDS),)))
    assert len(calls) == depth
    assert close(alone.captures[0][0], full.captures[0][layer]) < BOUND


def test_the_guard_is_the_mean_negative_log_likelihood_of_its_positions(model) -> None:
    found = model(UnitWork(PROMPTS, guard_positions=256))
    everywhere = tuple(tuple(range(len(p))) for p in PROMPTS)
    logits = (
        model(UnitWork(PROMPTS, (CaptureWork("after_logits", (-1,), everywhere),))).captures[0][0].astype(np.float64)
    )
    total, seen, start = 0.0, set(), 0
    for prompt in PROMPTS:
        for t in range(len(prompt) - 1):
            history = tuple(prompt[: t + 2].tolist())
            if history not in seen:  # a shared continuation counts once
                row = logits[start + t]
                total += np.log(np.exp(row - row.max()).sum()) + row.max() - row[prompt[t + 1]]
                seen.add(history)
        start += len(prompt)
    assert found.guard_count == len(seen) == 0 + 2 + 39 + 69 + 3
    assert found.guard_nll == pytest.approx(total / len(seen), rel=1e-6)


def test_the_guard_stops_at_its_number_of_positions(model) -> None:
    assert model(UnitWork(PROMPTS, guard_positions=7)).guard_count == 7


def test_greedy_takes_the_token_of_the_largest_logit_and_stops_at_a_stop_token(model) -> None:
    work = UnitWork(PROMPTS, (CaptureWork("after_logits", (-1,), ENDS),), max_tokens=6)
    free = model(work)
    first = [p.token_ids[0] for p in free.produced]
    assert first == free.captures[0][0].argmax(-1).tolist()
    assert all(p.stopped == "length" and len(p.token_ids) == 6 for p in free.produced)
    stop = free.produced[2].token_ids[2]
    held = model(UnitWork(PROMPTS, max_tokens=6, stop_ids=(stop,))).produced
    for a, b in zip(held, free.produced, strict=True):
        cut = b.token_ids.index(stop) + 1 if stop in b.token_ids else 6
        assert a.token_ids == b.token_ids[:cut]
        assert a.stopped == ("stop" if stop in b.token_ids else "length")


def test_decoding_equals_feeding_the_continuation_as_a_prompt(model) -> None:
    made = model(UnitWork(PROMPTS, max_tokens=7)).produced
    for prompt, produced in zip(PROMPTS, made, strict=True):
        fed = np.concatenate([prompt, produced.token_ids[:-1]]).astype(np.int32)
        at = tuple(range(len(prompt) - 1, len(fed)))
        logits = model(UnitWork((fed,), (CaptureWork("after_logits", (-1,), (at,)),))).captures[0][0]
        assert logits.argmax(-1).tolist() == list(produced.token_ids)


def test_a_nan_in_one_embedding_row_fails_only_prompts_that_use_it(tmp_path, monkeypatch) -> None:
    model = Opened(tiny_llama(tmp_path / "m.gguf", seed=11), "fast")
    work = UnitWork(PROMPTS, (CaptureWork("after_layer", LAYERS, ENDS),), max_tokens=3)
    right = model(work)
    store = model.session.backend.store
    original, poisoned = store.gather, int(PROMPTS[2][20])

    def gather(weight, rows):
        out = original(weight, rows)
        out[rows == poisoned] = np.nan
        return out

    monkeypatch.setattr(store, "gather", gather)
    found = model(work)
    guard = model(UnitWork(PROMPTS, guard_positions=256))
    assert np.isfinite(guard.guard_nll)
    assert guard.guard_count < 113  # prompts that failed are left out
    hit = {i for i, p in enumerate(PROMPTS) if poisoned in p}
    assert hit == {2} or 2 in hit
    assert found.failures == {i: NonFinite(0, "before_layer") for i in hit}
    for i in set(range(len(PROMPTS))) - hit:
        assert np.array_equal(found.captures[0][:, i], right.captures[0][:, i])
        assert found.produced[i] == right.produced[i]


def test_a_nan_weight_is_traced_to_its_layer(tmp_path) -> None:
    path = tiny_llama(tmp_path / "m.gguf", seed=11, quant="Q8_0")
    file = open_gguf(path)
    offset = file.tensors["blk.1.ffn_down.weight"].offset
    file.close()
    data = bytearray(path.read_bytes())
    data[offset : offset + 2] = b"\x00\x7e"  # the first block's f16 scale becomes NaN
    path.write_bytes(data)
    for route in ("reference", "fast"):
        found = Opened(path, route)(UnitWork(PROMPTS, (CaptureWork("after_layer", LAYERS, ENDS),), max_tokens=2))
        assert found.failures == dict.fromkeys(range(5), NonFinite(1, "after_layer"))
