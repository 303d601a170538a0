"""The recorders themselves, in a Python that has the references: equal to the goldens recorded by others."""

import os
from pathlib import Path

import numpy as np
import pytest

import ember
from ember.errors import EmberError, UnsupportedError
from ember.validation.compare import compare
from ember.validation.figures import disagreement
from ember.validation.prompts import default_ids
from ember.validation.record import GREEDY_STEPS, record_elsewhere
from ember.validation.recording import read_recording
from tests.foundry.tiny import tiny_llama

pytestmark = pytest.mark.slow
CASES = ("llama-f32", "llama-q4_k", "gpt2-f32", "qwen2-f32", "qwen3-f32", "gemma3-f32", "gemma4-e2b-like-f32")


@pytest.fixture(scope="module")
def python() -> Path:
    named = os.environ.get("EMBER_REFERENCE_PYTHON")
    if not named:
        pytest.skip("EMBER_REFERENCE_PYTHON is unset: name a Python that has the extra `reference`")
    return Path(named)


@pytest.mark.parametrize("against", ["llama.cpp", "transformers"])
@pytest.mark.parametrize("case", CASES)
def test_records_what_others_recorded(case: str, against: str, shared: Path, python: Path) -> None:
    """With exact GELU and RoPE llama.cpp is as near to the exact-GELU build as float32 lets it be."""
    golden = read_recording(shared / "goldens" / f"{case}.npz")
    made = record_elsewhere(python, against, shared / "goldens" / f"{case}.gguf", golden.prompts)  # type: ignore[arg-type]
    assert made.about["name"] == against
    for site, values in golden.sites().items():
        assert disagreement(made.sites()[site], values).max() < 1.2e-5, site
    assert np.array_equal(made.greedy[0], golden.arrays["greedy"])


def test_frequency_factors_are_refused_for_transformers_and_known_to_llama_cpp(tmp_path: Path, python: Path) -> None:
    model = tiny_llama(tmp_path / "m.gguf", rope_freqs=True, n_layers=1)
    with pytest.raises(EmberError, match=r"could not record transformers: .*rope_freqs\.weight is not carried over"):
        record_elsewhere(python, "transformers", model, [[1, 2, 3]])
    assert record_elsewhere(python, "llama.cpp", model, [[1, 2, 3]]).prompts == ((1, 2, 3),)


def test_a_file_that_llama_cpp_refuses_is_one_message(tmp_path: Path, python: Path) -> None:
    model = tiny_llama(tmp_path / "m.gguf", n_layers=1, without=("output_norm.weight",))
    with pytest.raises(EmberError, match=r"could not record llama\.cpp: .*would not load it") as found:
        record_elsewhere(python, "llama.cpp", model, [[1]])
    assert not isinstance(found.value, UnsupportedError)


@pytest.mark.realmodel
@pytest.mark.parametrize("variable", ["EMBER_SMOLLM2", "EMBER_GEMMA3"])
def test_real_models_agree_with_llama_cpp_at_every_layer(variable: str, python: Path) -> None:
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"{variable} is unset: it names the .gguf of a public model (tests/README.md)")
    with ember.open(named) as model:
        recording = record_elsewhere(python, "llama.cpp", Path(named), default_ids(model, GREEDY_STEPS))
        found = compare(model, recording)
    assert found.problems() == []
    assert found.rung == "activation reference"
