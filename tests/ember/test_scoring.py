"""Scores against probabilities worked out otherwise, and which tokens a continuation has."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember
from ember.errors import InputError, NumericsError
from ember.sampling import softmax
from ember.scoring import Cut, ScoredContinuation, cut_continuations, first_largest, likeliest, text_of, total
from ember.tokenizer import Tokenizer, load_tokenizer
from ember.tolerances import TOLERANCES
from ember.work import Continuation, InterventionWork, UnitWork
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import FAMILY_CASES
from tests.foundry.files import tensors_sha256
from tests.foundry.tiny import tiny_llama
from tests.foundry.tokenizer_files import VocabularyFile, byte_level, sentencepiece

RECORDED = json.loads((Path(__file__).parent / "goldens" / "recorded" / "scores.json").read_text())["cases"]
SMOLLM2 = Path(__file__).parent / "goldens" / "recorded" / "scores_smollm2.json"
BOUND = TOLERANCES["log_probability"].bound
ROUTES = ("reference", "fast")


@pytest.fixture(scope="module")
def family_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder, files = tmp_path_factory.mktemp("families"), {}

    def make(name: str) -> Path:
        if name not in files:
            case = FAMILY_CASES[name]
            files[name] = tiny_family(folder / f"{name}.gguf", case.tiny, metadata=case.metadata)
        return files[name]

    return make


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf", seed=3, context=64)


@pytest.fixture(scope="module")
def model(path: Path) -> ember.Model:
    return ember.open(path, threads=1)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", RECORDED)
def test_values_recorded_of_transformers_in_float64(family_file, name: str, route: str) -> None:
    told = RECORDED[name]
    assert tensors_sha256(family_file(name)) == told["tensors_sha256"]
    prompts = [np.array(one["tokens"], np.int32) for one in told["prompts"]]
    wanted = [Continuation(i, tuple(text)) for i, one in enumerate(told["prompts"]) for text in one["continuations"]]
    expected = [score for one in told["prompts"] for score in one["scores"]]
    result = ember.open(family_file(name), route=route, threads=1).run_unit(
        UnitWork(tuple(prompts), continuations=tuple(wanted))
    )
    compared = 0
    for found, tokens in zip(result.scores, expected, strict=True):
        values = [token["log_probability"] for token in tokens]
        np.testing.assert_allclose(found.log_probabilities, values, rtol=0, atol=BOUND)
        sure = [i for i, token in enumerate(tokens) if token["margin"] > 5e-4]
        compared += len(sure)
        assert [found.ranks[i] for i in sure] == [tokens[i]["rank"] for i in sure]
    assert compared >= 5  # of 12; the others have a neighbour too near to be ranked in float32


@pytest.mark.realmodel
@pytest.mark.parametrize("route", ROUTES)
def test_smollm2_scores_texts_as_transformers_in_float64(smollm2: Path, route: str) -> None:
    told = json.loads(SMOLLM2.read_text())["prompts"]
    opened = ember.open(smollm2, route=route, threads=1)
    found = opened.score([one["prompt"] for one in told], [one["texts"] for one in told], top_k=1)
    for one, scores in zip(told, found, strict=True):
        assert [list(score.token_ids) for score in scores] == one["continuations"]
        for score, tokens in zip(scores, one["scores"], strict=True):
            values = [token["log_probability"] for token in tokens]
            np.testing.assert_allclose(score.log_probabilities, values, rtol=0, atol=BOUND)
            assert list(score.ranks) == [token["rank"] for token in tokens]
    assert [scores[0].merged for scores in found] == [False, False, True, False]
    assert found[0][0].rank == 1
    assert found[0][0].top.token_ids == found[0][0].token_ids


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", RECORDED)
def test_one_token_continuations_share_out_all_probability(family_file, name: str, route: str) -> None:
    opened = ember.open(family_file(name), route=route, threads=1)
    prompt = np.array(RECORDED[name]["prompts"][0]["tokens"], np.int32)
    every = tuple(Continuation(0, (token,)) for token in range(opened.vocab_size))
    result = opened.run_unit(UnitWork((prompt,), continuations=every, top_k=opened.vocab_size))
    values = np.array([score.log_probabilities[0] for score in result.scores])
    assert math.isclose(np.exp(values).sum(), 1, abs_tol=1e-6)
    ranks = [score.ranks[0] for score in result.scores]
    assert sorted(ranks) == list(range(1, opened.vocab_size + 1))  # no two logits of these models are equal
    (top,) = result.top
    assert [ranks[token] for token in top.token_ids] == sorted(ranks)
    assert np.array_equal(values[list(top.token_ids)], top.log_probabilities)


@pytest.mark.parametrize("name", RECORDED)
def test_a_score_is_the_softmax_of_the_logits_step_by_step(family_file, name: str) -> None:
    """Brute force: each token after a prompt of its own, that holds all tokens before it."""
    opened = ember.open(family_file(name), threads=1)
    rng = np.random.default_rng(4)
    prompts = [rng.integers(8, opened.vocab_size - 2, size).astype(np.int32) for size in (1, 7, 33)]
    texts = [tuple(rng.integers(8, opened.vocab_size - 2, size).tolist()) for size in (4, 1, 9)]
    wanted = tuple(Continuation(i % 3, text) for i, text in enumerate([*texts, *texts[::-1]]))
    scores = opened.run_unit(UnitWork(tuple(prompts), continuations=wanted)).scores
    for one, found in zip(wanted, scores, strict=True):
        fed = [[*prompts[one.prompt].tolist(), *one.tokens[:i]] for i in range(len(one.tokens))]
        logits = opened.logits(tokens=fed)
        probabilities = softmax(logits.astype(np.float64))[np.arange(len(fed)), one.tokens]
        np.testing.assert_allclose(found.log_probabilities, np.log(probabilities), rtol=0, atol=1e-4)


def test_texts_are_scored_in_the_callers_order_and_in_any_units(model: ember.Model, monkeypatch) -> None:
    prompts = ["zz the scribe", "a", "the scribe wrote", "كتب", "the scribe"]
    texts = [[" b", " كاتب"], ["c"], [" the book", "x", " كتاب"], [" الولد"], [" wrote", " b"]]
    whole = model.score(prompts, texts, top_k=3)
    assert [[one.text for one in mine] for mine in whole] == texts
    monkeypatch.setattr("ember.model.UNIT_ROWS", 8)
    cut = model.score(prompts, texts, top_k=3)
    for prompt, mine, same in zip(prompts, whole, cut, strict=True):
        alone = model.score([prompt], [[one.text for one in mine]], top_k=3)[0]
        for a, b, c in zip(mine, same, alone, strict=True):
            assert a.token_ids == b.token_ids == c.token_ids
            assert a.ranks == b.ranks == c.ranks
            np.testing.assert_allclose(a.log_probabilities, b.log_probabilities, atol=1e-4)
            np.testing.assert_allclose(a.log_probabilities, c.log_probabilities, atol=1e-4)
        ids, logits = model.tokenizer.encode(prompt).ids, model.logits([prompt])[0]
        assert mine[0].top.token_ids == tuple(np.argsort(-logits, kind="stable")[:3].tolist())
        assert [*ids, *mine[0].token_ids] == model.tokenizer.encode(prompt + mine[0].text).ids or mine[0].merged


def test_interventions_reach_the_scores_of_their_prompt_only(model: ember.Model) -> None:
    prompts, texts = ["the scribe", "the book"], [[" wrote", " b"], [" wrote", " b"]]
    last = len(model.tokenizer.encode(prompts[0]).ids) - 1
    acting = [InterventionWork("zero", "after_layer", (1,), ((last,), ()))]
    before, after = model.score(prompts, texts), model.score(prompts, texts, interventions=acting)
    np.testing.assert_allclose(after[1][0].log_probabilities, before[1][0].log_probabilities, atol=1e-4)
    logits = model.capture(prompts, site="after_logits", interventions=acting, observe="after")["after_logits"]
    exact = np.log(softmax(logits.astype(np.float64)))[0, after[0][0].token_ids[0]]
    assert math.isclose(after[0][0].log_probabilities[0], exact, abs_tol=1e-4)
    assert abs(after[0][0].log_probability - before[0][0].log_probability) > 1e-2
    void = [InterventionWork("scale", "after_layer", (1,), ((last,), ()), strength=1.0)]
    assert model.score(prompts, texts, interventions=void) == before


# --- the numbers of a score -------------------------------------------------------------------------------------------


def test_sums_and_means() -> None:
    score = ScoredContinuation(" كتب", (4, 5), (-1.5, -0.25), (3, 1), merged=False)
    assert (score.log_probability, score.rank, score.n_bytes, score.n_characters) == (-1.75, 3, 7, 4)
    assert (score.per("text"), score.per("token"), score.per("byte")) == (-1.75, -0.875, -0.25)
    assert score.per("character") == -1.75 / 4
    with pytest.raises(InputError, match="per 'word'"):
        score.per("word")  # type: ignore[arg-type]


@given(st.lists(st.floats(-1e3, 0), min_size=1), st.randoms())
def test_a_sum_does_not_depend_on_the_order(values: list[float], random) -> None:
    other = list(values)
    random.shuffle(other)
    assert total(values) == total(other)


def test_the_likeliest_by_sum_and_by_mean_the_first_of_equal_ones() -> None:
    def score(text: str, *values: float) -> ScoredContinuation:
        return ScoredContinuation(text, tuple(range(len(values))), values, (1,) * len(values), merged=False)

    short, long, wide = score("ab", -2.0), score("abcdefghijkl", -1.0, -1.5, -1.5), score("ك", -2.0)
    assert likeliest([long, short]) == 1
    assert likeliest([short, long], "token") == 1
    assert likeliest([short, long], "byte") == 1
    assert likeliest([short, wide]) == likeliest([wide, short]) == 0  # equal: the first
    assert likeliest([wide, short], "character") == 1
    assert first_largest([-1.0, -0.5, -0.5]) == 1
    with pytest.raises(InputError, match="at least one"):
        likeliest([])


# --- the boundary rule ------------------------------------------------------------------------------------------------

LAM, ALEF, TATWEEL, FATHA = "\u0644", "\u0627", "\u0640", "\u064e"
WOMAN = "\U0001f469"
BOUNDARIES = [
    # prompt, continuation; whether it merges under: llama-spm, llama-bpe, gemma-4, qwen2, gpt-2
    ("The root is", " كتب", (False, False, False, False, False)),
    ("The root is ", "كتب", (False, True, True, True, True)),
    ("قال " + LAM, ALEF, (False, True, True, True, False)),
    ("كتب", FATHA, (False, False, False, False, False)),
    ("كت" + TATWEEL, TATWEEL + "ب", (False, True, True, True, False)),
    ("كت", TATWEEL + "ب", (False, False, False, False, False)),
    ("مد", "رسة", (False, True, True, True, False)),
    ("hel", "lo", (True, True, True, True, True)),
    ("a \U0001f468", "\u200d" + WOMAN, (False, False, False, False, False)),
    ("!", "\U0001f600", (False, False, False, False, False)),
]
VOCABULARIES = ("llama-spm", "llama-bpe", "gemma-4", "qwen2", "gpt-2")


@pytest.fixture(scope="module")
def real(shared: Path) -> dict[str, Tokenizer]:
    return {name: load_tokenizer(shared / "vocab" / f"ggml-vocab-{name}.gguf") for name in VOCABULARIES}


@pytest.mark.parametrize(("prompt", "text", "merges"), BOUNDARIES)
def test_boundaries_under_real_vocabularies(real, prompt: str, text: str, merges: tuple[bool, ...]) -> None:
    for name, merged in zip(VOCABULARIES, merges, strict=True):
        tokenizer = real[name]
        fed = tokenizer.encode(prompt).ids
        (cut,) = cut_continuations(tokenizer, prompt, fed, [text])
        assert cut.merged is merged, name
        assert tokenizer.decode_bytes(cut.tokens) == text.encode(), name
        joined = tokenizer.encode(prompt + text).ids
        assert ([*fed, *cut.tokens] == joined) is not merged, name


def test_an_emoji_may_be_several_tokens_of_bytes(real) -> None:
    """Cut where the text is, never inside a letter: the first token alone is no text."""
    tokenizer = real["llama-bpe"]
    (cut,) = cut_continuations(tokenizer, "!", tokenizer.encode("!").ids, ["\U0001f600"])
    assert [tokenizer.token_bytes(token) for token in cut.tokens] == [b"\xf0\x9f\x98", b"\x80"]
    half = [*tokenizer.encode("!").ids, cut.tokens[0]]
    assert text_of(tokenizer, half) is None
    assert cut_continuations(tokenizer, None, half, ["x"]) == [Cut(tuple(tokenizer.encode_fragment("x")), merged=True)]


Load = Callable[[VocabularyFile], Tokenizer]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return lambda file: load_tokenizer(file.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf"))


def test_the_rule_on_a_vocabulary_of_one_merge(load: Load) -> None:
    tokenizer = load(byte_level(["a b"]).but(pre="gpt-2"))
    one, other = tokenizer.encode("a").ids, tokenizer.encode("b").ids
    assert cut_continuations(tokenizer, "a", one, ["b", "a"]) == [Cut(tuple(other), True), Cut(tuple(one), False)]
    assert cut_continuations(tokenizer, "ca", [*tokenizer.encode("c").ids, *one], ["b"])[0].merged


def test_what_is_fed_counts_not_what_the_text_would_be(load: Load) -> None:
    """Ids that no encoding gives: the joined text is tokenised otherwise, so the continuation is a fragment."""
    tokenizer = load(byte_level(["a b"]).but(pre="gpt-2"))
    fed = [*tokenizer.encode("a").ids, *tokenizer.encode("b").ids]
    assert text_of(tokenizer, fed) == "ab"
    assert cut_continuations(tokenizer, "ab", fed, ["c"]) == [Cut(tuple(tokenizer.encode("c").ids), merged=True)]


def test_a_fragment_has_no_space_and_no_bos_before_it(load: Load) -> None:
    letters = [(letter, -100.0) for letter in "abc▁"]
    tokenizer = load(sentencepiece([*letters, ("▁a", -1), ("ab", -2)]).but(add_space_prefix=True))
    fed = tokenizer.encode("ca").ids
    assert fed[0] == tokenizer.bos_id
    assert text_of(tokenizer, fed) == "ca"
    (cut,) = cut_continuations(tokenizer, "ca", fed, ["ba"])
    assert cut.merged
    assert [tokenizer.token_bytes(token) for token in cut.tokens] == [b"b", b"a"]
    (cut,) = cut_continuations(tokenizer, "ca", fed, [" a"])
    assert ([tokenizer.token_bytes(token) for token in cut.tokens], cut.merged) == ([b" a"], False)


SNIPPETS = st.text("ab كت\u064e\u0640لا😀\n<", min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(SNIPPETS, SNIPPETS)
def test_tokens_spell_the_text_and_the_flag_says_which_way(model: ember.Model, prompt: str, text: str) -> None:
    tokenizer = model.tokenizer
    fed = tokenizer.encode(prompt).ids
    (cut,) = cut_continuations(tokenizer, prompt, fed, [text])
    assert tokenizer.decode_bytes(cut.tokens) == text.encode()
    joined = tokenizer.encode(prompt + text).ids
    assert cut.merged == (joined[: len(fed)] != fed)
    assert list(cut.tokens) == (tokenizer.encode_fragment(text) if cut.merged else joined[len(fed) :])


def test_prompts_given_as_ids_are_scored_as_the_text_they_spell(tmp_path: Path) -> None:
    with_bos = ember.open(tiny_llama(tmp_path / "b.gguf", seed=3, add_bos=True), threads=1)
    text = "the scribe"
    by_text = with_bos.score([text], [[" wrote", "x"]])
    assert with_bos.score(tokens=[with_bos.tokenizer.encode(text).ids], continuations=[[" wrote", "x"]]) == by_text


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((["a", "b"], [["x"]]), "continuations: found 1 lists for 2 prompts"),
        ((["a"], "x"), "continuations: found one text for 1 prompts"),
        ((["a", "b"], [["x"], "y"]), "continuations of prompt 1: found 'y'"),
        ((["a"], [[]]), "continuations of prompt 0: found []"),
        ((["a", "b"], [["x"], ["y", ""]]), "prompt 1: an empty continuation"),
        ((["a"], [[7]]), "prompt 0: continuation: found int"),
        ((["a"], [["\ud800"]]), "prompt 0: text: a lone surrogate"),
        ((["a"], [["b c " * 40]]), r"prompt 0 has 1 tokens and \d+ to score; the model's context is 64"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_name(model: ember.Model, arguments, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("[]", r"\[\]")):
        model.score(*arguments)


@pytest.mark.parametrize("top_k", [-1, True, 1.5])
def test_top_k_is_a_count(model: ember.Model, top_k) -> None:
    with pytest.raises(InputError, match="top_k"):
        model.score(["a"], [["b"]], top_k=top_k)


@pytest.mark.parametrize(("tensor", "place"), [("blk.2.ffn_up.weight", "layer 2"), ("output.weight", "after_logits")])
def test_a_value_that_is_not_finite_names_its_prompt(tmp_path: Path, tensor: str, place: str) -> None:
    path = tiny_llama(tmp_path / "m.gguf", seed=3, quant="Q8_0")
    with ember.open(path) as opened:
        offset = opened.file.tensors[tensor].offset
    data = bytearray(path.read_bytes())
    data[offset : offset + 2] = b"\x00\x7c"  # f16 infinity
    path.write_bytes(data)
    for top_k in (0, 2):
        with pytest.raises(NumericsError, match=f"prompt 0: .* first appeared at {place}"):
            ember.open(path, threads=1).score(["a b"], [["c"]], top_k=top_k)
