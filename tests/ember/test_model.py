"""The Python front door: shapes, orders, refusals, provenance."""

import hashlib

import numpy as np
import pytest

import ember
from ember.errors import InputError, ModelError, NumericsError, UnsupportedError
from ember.positions import Position
from ember.sites import SITES
from ember.work import InterventionWork
from tests.foundry.tiny import tiny_llama

ARABIC = ["كَتَبَ الوَلَدُ", "كــتاب", "لا إله", "abc كتب 123 😀👩‍👧", "كَتَبَ"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf", seed=3)


@pytest.fixture(scope="module")
def model(path):
    return ember.open(path, threads=1)


def test_facts_of_the_model(model, path) -> None:
    assert (model.architecture, model.n_layers, model.hidden_size, model.vocab_size) == ("llama", 3, 64, 512)
    assert model.route == "fast"
    assert ember.open(path, route="reference").route == "reference"


def test_capture_of_texts_has_one_row_a_prompt_in_the_order_given(model) -> None:
    found = model.capture(ARABIC)
    assert found["after_layer"].shape == (5, 3, 64)
    assert found["after_layer"].dtype == np.float32
    assert found["after_layer"].flags.c_contiguous
    ids = [model.tokenizer.encode(text).ids for text in ARABIC]
    assert found.rows["position"].tolist() == [len(i) - 1 for i in ids]
    assert found.rows["token_id"].tolist() == [i[-1] for i in ids]
    by_tokens = model.capture(tokens=ids)["after_layer"]
    assert np.array_equal(by_tokens, found["after_layer"])


def test_token_lists_are_taken_as_they_are(path) -> None:
    with_bos = ember.open(
        path.with_name("b.gguf") if tiny_llama(path.with_name("b.gguf"), seed=3, add_bos=True) else path
    )
    assert with_bos.tokenizer.encode("ab").ids[0] == with_bos.tokenizer.bos_id
    assert with_bos.capture(tokens=[[5, 6]]).rows["position"].tolist() == [1]


def test_every_site_has_its_shape(model) -> None:
    found = model.capture(ARABIC[:2], site=list(SITES))
    assert {site: found[site].shape for site in SITES} == {
        "before_layer": (2, 3, 64),
        "after_attention": (2, 3, 64),
        "after_mlp": (2, 3, 64),
        "after_layer": (2, 3, 64),
        "before_logits": (2, 64),
        "after_logits": (2, 512),
    }
    assert np.array_equal(model.logits(ARABIC[:2]), found["after_logits"])


def test_layers_come_in_the_order_given_and_negative_ones_from_the_end(model) -> None:
    everything = model.capture(ARABIC[:2])["after_layer"]
    found = model.capture(ARABIC[:2], layers=[-1, 0])
    assert found.layers["after_layer"] == (2, 0)
    np.testing.assert_allclose(found["after_layer"], everything[:, [2, 0]], atol=1e-5)


def test_all_positions_give_one_row_a_token(model) -> None:
    ids = [[7, 8, 9], [7, 8], [100]]
    found = model.capture(tokens=ids, position="all")
    assert found["after_layer"].shape == (6, 3, 64)
    assert found.rows[["prompt", "position"]].tolist() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]
    assert found.rows["token_id"].tolist() == [7, 8, 9, 7, 8, 100]
    last = model.capture(tokens=ids)["after_layer"]
    np.testing.assert_allclose(found["after_layer"][[2, 4, 5]], last, atol=1e-5)
    first = model.capture(tokens=ids, position=0)["after_layer"]
    np.testing.assert_allclose(found["after_layer"][[0, 3, 5]], first, atol=1e-5)
    mean = model.capture(tokens=ids, position="mean")["after_layer"]
    np.testing.assert_allclose(mean[0], found["after_layer"][:3].mean(axis=0), atol=1e-5)
    again = model.capture(tokens=[[1, 2, 3]], position=Position("from_end", 1))
    assert again.rows["position"].tolist() == [1]


def test_the_order_of_many_prompts_is_the_callers(model) -> None:
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, 512, int(n)).tolist() for n in rng.integers(1, 30, 40)]
    whole = model.capture(tokens=ids)["after_layer"]
    for i in (0, 13, 39):
        np.testing.assert_allclose(model.capture(tokens=[ids[i]])["after_layer"][0], whole[i], atol=1e-5)


def test_token_ids_may_come_as_an_array(model) -> None:
    ids = np.array([[1, 2], [3, 4]])
    assert np.array_equal(model.capture(tokens=ids)["after_layer"], model.capture(tokens=ids.tolist())["after_layer"])


def test_generate(model) -> None:
    made = model.generate(ARABIC[0], max_tokens=5, stop_at_eos=False)
    ids = model.tokenizer.encode(ARABIC[0]).ids
    expected = []
    for _ in range(5):
        expected.append(int(model.logits(tokens=[ids + expected])[0].argmax()))
    assert made.token_ids == expected
    assert made.text == model.tokenizer.decode(expected)
    assert made.stopped == "length"


def test_provenance_says_where_everything_comes_from(model, path) -> None:
    found = model.capture(ARABIC[:1], site=["after_attention", "after_logits"], layers=[1]).provenance
    assert found["model_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found["model"]["architecture"] == "llama"
    assert found["model"]["defaulted"] == {
        "llama.attention.key_length": 8,
        "llama.attention.value_length": 8,
        "llama.rope.scaling.factor": 1.0,
    }
    contract = found["tensor_contract"]
    assert contract["sites"]["after_attention"]["1"] == {
        "side": "contribution before the attention addition",
        "norm": "blk.1.attn_norm.weight",
        "tensors": [f"blk.1.attn_{n}.weight" for n in ("q", "k", "v", "output")],
    }
    assert contract["tensors"]["blk.1.attn_k.weight"] == {"type": "F32", "shape": [16, 64], "part": 0}
    assert contract["sites"]["after_logits"]["-1"]["tensors"] == ["output.weight"]
    assert found["numerics"]["route"] == "fast"
    assert found["numerics"]["contract"] in (1, 2)
    assert found["numerics"]["blas"][0]["threads"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"prompts": ["a"], "tokens": [[1]]}, "both are given: give either prompts"),
        ({}, "neither is given: give either prompts"),
        ({"prompts": None}, "neither is given: give either prompts"),
        ({"prompts": "abc"}, "give a list"),
        ({"prompts": []}, "at least one"),
        ({"prompts": ["a", ""]}, "prompt 1 is empty"),
        ({"tokens": [[1], []]}, "prompt 1 is empty"),
        ({"tokens": [[1, -1]]}, "id -1 is outside the vocabulary 0 to 511"),
        ({"tokens": [[512]]}, "id 512 is outside"),
        ({"tokens": [[1]], "site": "before_logits", "layers": [1]}, "before_logits belongs to no layer"),
        ({"tokens": [[1.5]]}, "expected a list of ids"),
        ({"tokens": [[True, 2]]}, "expected a list of ids"),
        ({"prompts": [None]}, "prompt 0: found NoneType, expected a text"),
        ({"prompts": ["a", b"abc"]}, "prompt 1: found bytes"),
        ({"tokens": [[1] * 513]}, "context is 512"),
        ({"tokens": [[1]], "site": "after_layr"}, "did you mean 'after_layer'"),
        ({"tokens": [[1]], "layers": [3]}, "layer 3 does not exist; the model has layers 0 to 2"),
        ({"tokens": [[1]], "layers": [0, -3]}, "different layers"),
        ({"tokens": [[1]], "layers": "last"}, "expected 'all'"),
        ({"tokens": [[1, 2], [1]], "position": 1}, "prompt 1: position index 1 does not exist"),
        ({"tokens": [[1]], "position": "first"}, "position 'first'"),
    ],
)
def test_what_cannot_be_served_is_refused_with_one_sentence(model, arguments, said) -> None:
    with pytest.raises(InputError, match=said):
        model.capture(arguments.pop("prompts", None), **arguments)


def test_generation_from_nothing_says_what_is_missing(model) -> None:
    with pytest.raises(InputError, match="neither is given"):
        model.generate(None)


def test_generation_over_the_context_is_refused(model) -> None:
    with pytest.raises(InputError, match="and 3 to generate"):
        model.generate(tokens=[1] * 510, max_tokens=3)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        (
            {"metadata": {"general.architecture": "mamba"}},
            UnsupportedError,
            "'mamba' is not supported; supported are gpt2, ",
        ),
        ({"metadata": {"llama.block_count": None}}, ModelError, "llama.block_count: absent"),
        ({"metadata": {"llama.block_count": 2}}, ModelError, "9 tensors that the llama family does not use: blk.2"),
        ({"metadata": {"llama.block_count": 4}}, ModelError, "blk.3.attn_norm.weight: absent"),
        ({"metadata": {"llama.feed_forward_length": 128}}, ModelError, r"found shape \[96, 64\], expected \[128, 64\]"),
        ({"metadata": {"llama.attention.head_count": 0}}, ModelError, "head_count: found 0"),
        ({"metadata": {"llama.attention.head_count_kv": 3}}, ModelError, "a divisor of the 8 heads"),
        ({"metadata": {"llama.rope.freq_base": float("nan")}}, ModelError, "freq_base: found nan"),
        ({"metadata": {"llama.attention.layer_norm_rms_epsilon": 0.0}}, ModelError, "epsilon: found 0.0"),
        ({"metadata": {"llama.attention.layer_norm_rms_epsilon": -1.0}}, ModelError, "epsilon: found -1.0"),
        ({"metadata": {"llama.block_count": 2**31 - 1}}, ModelError, "blk.3.attn_norm.weight: absent"),
        ({"metadata": {"llama.expert_count": 8}}, UnsupportedError, "mixture-of-experts"),
        ({"metadata": {"llama.rope.scaling.type": "yarn"}}, UnsupportedError, "yarn"),
        ({"without": ("output_norm.weight",)}, ModelError, "output_norm.weight: absent"),
    ],
)
def test_files_that_do_not_make_a_model_are_refused(tmp_path, changes, error, said) -> None:
    with pytest.raises(error, match=said):
        ember.open(tiny_llama(tmp_path / "m.gguf", seed=3, **changes))


def test_an_own_head_is_used_and_a_missing_one_is_tied(tmp_path) -> None:
    own = ember.open(tiny_llama(tmp_path / "own.gguf", seed=3))
    tied = ember.open(tiny_llama(tmp_path / "tied.gguf", seed=3, tied=True))
    assert (own.card.tied_head, tied.card.tied_head) == (False, True)
    h = tied.capture(tokens=[[5, 6]], site=["before_logits", "after_logits"])
    embedding = tied.file.view("token_embd.weight")
    np.testing.assert_allclose(h["after_logits"], h["before_logits"] @ embedding.T, rtol=1e-4, atol=1e-4)


def test_huge_context_length_allocates_nothing(tmp_path) -> None:
    model = ember.open(tiny_llama(tmp_path / "m.gguf", seed=3, metadata={"llama.context_length": 2**31 - 1}))
    assert model.capture(tokens=[[1, 2]])["after_layer"].shape == (1, 3, 64)


def test_a_nan_weight_is_an_error_that_names_the_layer(tmp_path) -> None:
    path = tiny_llama(tmp_path / "m.gguf", seed=3, quant="Q8_0")
    with ember.open(path) as model:
        offset = model.file.tensors["blk.2.ffn_up.weight"].offset
    data = bytearray(path.read_bytes())
    data[offset : offset + 2] = b"\x00\x7c"  # f16 infinity
    path.write_bytes(data)
    with pytest.raises(NumericsError, match=r"prompt 0: .* first appeared at layer 2"):
        ember.open(path).capture(tokens=[[1, 2, 3]])


def test_bad_options_of_open(path) -> None:
    with pytest.raises(InputError, match="route 'quick'"):
        ember.open(path, route="quick")
    with pytest.raises(InputError, match="threads 0"):
        ember.open(path, threads=0)
    with pytest.raises(InputError, match="no such built-in"):
        ember.open("builtin:none")
    with pytest.raises(InputError, match=r"download the \.gguf"):
        ember.open("hf://owner/repo/file.gguf")


def test_the_public_names_are_a_list() -> None:
    assert set(dir(ember)) == set(ember.__all__)
    for name in ember.__all__:
        assert getattr(ember, name) is not None
    with pytest.raises(AttributeError, match="offers"):
        _ = ember.nothing


def _act(operation="add", site="after_layer", layers=(1,), positions=((2,),), **rest) -> InterventionWork:
    return InterventionWork(operation, site, layers, positions, **rest)


WIDE = np.ones(64, np.float32)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (None, "intervention 0: found NoneType, expected an InterventionWork"),
        (_act("explode"), r"expected one of zero, scale"),
        (_act(layers=(3,), vector=WIDE), r"layers \[3\] do not exist"),
        (_act(layers=(1, 1), vector=WIDE), r"layers \[1, 1\]: expected each once, in ascending order"),
        (_act(positions=((4,),), vector=WIDE), r"positions \[4\] of prompt 0, expected token indices from 0 to 3"),
        (_act(positions=((-1,),), vector=WIDE), r"positions \[-1\] of prompt 0, expected token indices from 0 to 3"),
        (_act(positions=((1,), (1,)), vector=WIDE), "positions of 2 prompts, expected those of 1"),
        (_act(steps=((0,), (0,)), vector=WIDE), "steps of 2 prompts, expected those of 1, or none"),
        (_act(steps=((-5,),), vector=WIDE), "expected numbers from 0, or -1 for all of them"),
        (_act("scale", strength=float("nan")), "strength nan: expected a finite number"),
        (_act(), "found 0 sources, expected one"),
        (_act(vector=WIDE[:5]), r"a vector of shape \(5,\), expected \(64,\) or \(1, 64\)"),
        (_act(vector=np.ones((1, 1, 64), np.float32)), r"a vector of shape \(1, 1, 64\)"),
        (_act(site="after_logits", layers=(-1,), vector=WIDE), r"a vector of shape \(64,\), expected \(512,\)"),
        (_act(rows=np.ones((1, 7, 64), np.float32)), r"rows of shape \(1, 7, 64\), expected \(1, 1, 64\)"),
        (_act(capture=1), "capture 1 does not exist: there are 1, counted from 0"),
        (_act(capture=0), "is not taken before layer 1 is acted on"),
        (_act(capture=0, capture_layer=2), "is not taken before layer 1 is acted on"),
        (_act(capture=0, capture_layer=7), r"capture 0 has no layer 7, only \[0, 1, 2\]"),
        (
            _act(capture=0, capture_layer=0, positions=((1, 2),)),
            "capture 0 has 4 rows of prompt 0, expected one, or the 2",
        ),
        (
            _act(site="after_logits", layers=(-1,), positions=((3,),), capture=0, capture_layer=0),
            "not as wide as those",
        ),
    ],
)
def test_interventions_that_cannot_act_are_refused(model, wrong, said) -> None:
    with pytest.raises(InputError, match=said):
        model.capture(tokens=[[1, 2, 3, 4]], position="all", interventions=[wrong], observe="after")


def test_an_intervention_takes_its_rows_from_an_earlier_layer(model) -> None:
    ids = [1, 2, 3, 4]
    copied = _act("replace", positions=((0, 1, 2, 3),), capture=0, capture_layer=0)
    found = model.capture(tokens=[ids], position="all", interventions=[copied], observe="after")["after_layer"]
    assert np.array_equal(found[:, 1], found[:, 0])
    assert np.array_equal(found[:, 0], model.capture(tokens=[ids], position="all")["after_layer"][:, 0])


@pytest.mark.parametrize("count", [1.5, "3", None, True, -1])
def test_counts_of_tokens_are_integers(model, count) -> None:
    for verb in (model.generate, model.trace):
        with pytest.raises(InputError, match=r"max_tokens .*: expected an integer of at least"):
            verb(tokens=[1, 2], max_tokens=count)
    assert model.generate(tokens=[1, 2], max_tokens=np.int64(2), stop_at_eos=False).stopped == "length"
