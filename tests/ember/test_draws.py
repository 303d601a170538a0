"""Drawing through the engine: the model's own probabilities, and tokens that a prompt's seed and key alone decide."""

import numpy as np
import pytest

import ember
from ember.model import Model
from ember.sampling import softmax
from ember.work import Sampling, Tokens, UnitWork

CRITICAL = 0.001
"""How often chance alone would exceed the bound; the seeds are fixed, so it is decided once."""


@pytest.fixture(scope="module")
def model() -> Model:
    return ember.open("builtin:sarf-nano", route="reference")


def drawn(model: Model, prompts: list[Tokens], sampling: Sampling, max_tokens: int) -> list[tuple[int, ...]]:
    result = model.run_unit(UnitWork(tuple(prompts), max_tokens=max_tokens, sampling=sampling))
    return [one.token_ids for one in result.produced]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.5, 5, 1.0), (1.0, 0, 0.8), (1.3, 7, 0.7)]
)
def test_first_tokens_follow_the_model_s_probabilities(model: Model, temperature, top_k, top_p) -> None:
    """2,000 prompts with the same text and keys of their own, against probabilities from the logits."""
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with scikit-learn (extra `analysis`)")
    n = 2000
    ids = model.tokenizer.encode_ids(["ما"])[0]
    logits = model.logits(["ما"])[0].astype(np.float64)
    expected = by_hand(logits, temperature, top_k, top_p) * n
    keys = tuple(f"stimulus-{index}" for index in range(n))
    tokens = drawn(model, [ids] * n, Sampling(temperature, top_k, top_p, 4, keys), 1)
    found = np.bincount([token for (token,) in tokens], minlength=len(logits)).astype(np.float64)
    assert np.all(found[expected == 0] == 0)
    often = expected >= 5  # the rest is one class: chi-square is about counts that are not tiny
    observed = np.append(found[often], found[~often].sum())
    means = np.append(expected[often], expected[~often].sum())
    if means[-1] < 1:
        observed, means = observed[:-1], means[:-1]
    assert len(means) >= 3
    chi_square = float(((observed - means) ** 2 / means).sum())
    assert chi_square < stats.chi2.isf(CRITICAL, len(means) - 1)


def by_hand(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """The same rules, said the long way."""
    ranked = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    kept = ranked[:top_k] if top_k else ranked
    weights = {token: np.exp((logits[token] - logits.max()) / temperature) for token in kept}
    total, mass, chosen = sum(weights.values()), 0.0, []
    for token in kept:
        chosen.append(token)
        mass += weights[token] / total
        if mass > top_p:
            break
    out = np.zeros(len(logits))
    out[chosen] = [weights[token] for token in chosen]
    return out / out.sum()


def test_a_prompt_draws_the_same_alone_in_company_and_in_any_order(model: Model) -> None:
    texts = ["ما", "الجذر ك ت ب", "اسم", "ما وزن", "x"]
    ids = model.tokenizer.encode_ids(texts)
    alone = [
        drawn(model, [one], Sampling(1.2, 0, 0.95, 9, (text,)), 12)[0] for one, text in zip(ids, texts, strict=True)
    ]
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [3, 1]):
        keys = tuple(texts[index] for index in order)
        together = drawn(model, [ids[index] for index in order], Sampling(1.2, 0, 0.95, 9, keys), 12)
        assert together == [alone[index] for index in order]


def test_seed_and_key_both_decide(model: Model) -> None:
    ids = model.tokenizer.encode_ids(["ما"])[0]
    made = {
        (seed, key): drawn(model, [ids], Sampling(1.5, 0, 1.0, seed, (key,)), 12)[0] for seed in (0, 1) for key in "ab"
    }
    assert len(set(made.values())) == 4


def test_temperature_zero_and_one_candidate_are_greedy(model: Model) -> None:
    text = "اسم الفاعل من الجذر ك ت ب:"
    greedy = model.generate(text, max_tokens=12).token_ids
    assert model.generate(text, max_tokens=12, temperature=0.0, top_k=3, top_p=0.5, seed=1).token_ids == greedy
    assert model.generate(text, max_tokens=12, temperature=3.0, top_k=1, seed=1).token_ids == greedy
    assert model.generate(text, max_tokens=12, temperature=3.0, top_p=0.0, seed=1).token_ids == greedy


def test_both_routes_draw_from_the_same_numbers(model: Model) -> None:
    """Their logits differ in the last bits, which moves a boundary between tokens by as little."""
    fast = ember.open("builtin:sarf-nano", route="auto")
    same = [
        model.generate("ما", max_tokens=8, temperature=1.0, seed=seed).token_ids
        == fast.generate("ما", max_tokens=8, temperature=1.0, seed=seed).token_ids
        for seed in range(20)
    ]
    assert sum(same) >= 19


def test_the_model_s_softmax_is_the_sampler_s(model: Model) -> None:
    logits = model.logits(["ما"])[0]
    assert softmax(logits) == pytest.approx(by_hand(logits.astype(np.float64), 1.0, 0, 1.0), abs=1e-12)
