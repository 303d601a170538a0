"""The makers of tiny models: bytes from a seed, keys as in the given goldens, texts that can be tokenised."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

import ember
from tests.foundry.families import Tiny, family_keys, tiny_family
from tests.foundry.families_cases import FAMILY_CASES, PLAIN
from tests.foundry.files import read_keys
from tests.foundry.goldens import Golden, disagreement

TEXT = "The كَتَبَ الولد\nthe 😀 end"
GIVEN = ("gpt2-f32", "llama-f32", "qwen2-f32", "qwen3-f32", "gemma3-f32", "gemma4-e2b-like-f32")
NOT_IN_EVERY_FILE = {
    "llama.vocab_size",
    "gemma3.attention.sliding_window_pattern",
    "gemma3.rope.freq_base_swa",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.mask_token_id",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_bos_token",
}


def test_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("gpt2-untied-odd-vocab-mixed", "gemma4-ple-shared-mixed"):
        tiny = FAMILY_CASES[name].tiny
        assert tiny_family(tmp_path / "a", tiny).read_bytes() == tiny_family(tmp_path / "b", tiny).read_bytes()


@pytest.mark.parametrize("family", PLAIN)
def test_any_text_has_tokens_that_give_it_back(family: str, tmp_path: Path) -> None:
    with ember.open(tiny_family(tmp_path / "m.gguf", PLAIN[family]), threads=1) as model:
        encoding = model.tokenizer.encode(TEXT, add_special=False)
        assert model.tokenizer.decode(encoding.ids) == TEXT
        assert len(encoding.ids) < len(TEXT.encode())  # some tokens are longer than a byte
        assert model.tokenizer.vocab_size == model.vocab_size == PLAIN[family].vocab
        assert np.isfinite(model.capture([TEXT])["after_layer"]).all()


@pytest.mark.parametrize("case", GIVEN)
def test_keys_have_the_names_and_types_of_the_given_files(case: str, shared: Path) -> None:
    reader = GGUFReader(str(shared / "goldens" / f"{case}.gguf"))
    given = {name: kind for name, (kind, _) in read_keys(reader).items()}
    family = case.split("-", maxsplit=1)[0]
    made = {name: kind for name, (kind, _) in family_keys(Tiny(family, sliding=3, head_dim=8)).items()}
    scaling = {name for name in made if "scaling" in name}
    assert set(given) - set(made) <= NOT_IN_EVERY_FILE | {"gemma4.final_logit_softcapping"}
    assert set(made) - set(given) - scaling <= NOT_IN_EVERY_FILE
    shape = ("head_count_kv", "feed_forward_length", "sliding_window_pattern")  # scalars or arrays
    assert [name for name in set(given) & set(made) if given[name] != made[name] and not name.endswith(shape)] == []


@pytest.mark.parametrize("case", GIVEN)
def test_recorder_repeats_the_given_values_of_float64(case: str, shared: Path) -> None:
    reference = pytest.importorskip(
        "tests.foundry.families_transformers", reason="transformers (extra `reference`) is not installed"
    )
    exact = reference.Transformers(shared / "goldens" / f"{case}.gguf")
    prompts = Golden.read(shared / "goldens" / f"{case}.npz").prompts
    with np.load(shared / "goldens" / f"{case}.hf64.npz") as given:
        for index, prompt in enumerate(prompts):
            states = exact.states(prompt)
            for key in ("l_out", "attn_contrib", "mlp_contrib", "result_norm", "logits"):
                assert disagreement(states[key], given[key][index]).max() < 1e-6, (index, key)


@pytest.mark.parametrize("family", PLAIN)
def test_llama_cpp_tokenises_as_ember_does(family: str, tmp_path: Path) -> None:
    states_of = pytest.importorskip(
        "tests.foundry.llama_cpp_states", reason="llama-cpp-python (extra `reference`) is not installed"
    )
    path = tiny_family(tmp_path / "m.gguf", PLAIN[family])
    with states_of.LlamaCpp(path, context=64) as reference:
        for text in (TEXT, " ", "  the الكتب", "ktb"):
            assert ember.load_tokenizer(path).encode(text).ids == reference.tokenize(text)
