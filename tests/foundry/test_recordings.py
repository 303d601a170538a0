"""The recordings themselves: llama.cpp's values are those of the formulas in float64, and the weights are sane."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGUFReader

from tests.foundry.cases import CONTEXT, TINY_CASES
from tests.foundry.files import dequantised, read_keys
from tests.foundry.goldens import Golden, allowance, disagreement
from tests.foundry.llama_float64 import Float64Llama
from tests.foundry.tiny import tiny_llama

RECORDED = Path(__file__).parents[1] / "ember" / "goldens" / "recorded"
SHARED_LLAMAS = ("llama-f32", "llama-tied-q8_0", "llama-q4_k")


@pytest.mark.parametrize("case", TINY_CASES)
def test_recorded_states_are_those_of_float64(case: str, tmp_path: Path) -> None:
    golden = Golden.read(RECORDED / f"{case}.npz")
    exact = Float64Llama.read(tiny_llama(tmp_path / "t.gguf", context=CONTEXT, **TINY_CASES[case]))
    for index, prompt in enumerate(golden.prompts):
        states = exact.states(prompt)
        for key in ("h0", "l_out", "attn_contrib", "mlp_contrib", "result_norm", "logits"):
            bound = 1.5e-5 + allowance(len(prompt))
            assert disagreement(golden.arrays[key][index], states[key][-1]).max() < bound, (index, key)


@pytest.mark.parametrize("case", SHARED_LLAMAS)
def test_float64_llama_agrees_with_transformers(case: str, shared: Path) -> None:
    exact = Float64Llama.read(shared / "goldens" / f"{case}.gguf")
    golden = Golden.read(shared / "goldens" / f"{case}.npz")
    with np.load(shared / "goldens" / f"{case}.hf64.npz") as transformers:
        for index, prompt in enumerate(golden.prompts):
            states = exact.states(prompt)
            for key in ("l_out", "attn_contrib", "mlp_contrib", "result_norm", "logits"):
                assert disagreement(states[key][-1], transformers[key][index]).max() < 1e-6, (index, key)


def test_recorder_repeats_the_shared_goldens_bit_by_bit(shared: Path) -> None:
    states_of = pytest.importorskip(
        "tests.foundry.llama_cpp_states", reason="llama-cpp-python (extra `reference`) is not installed"
    )
    golden = Golden.read(shared / "goldens" / "llama-f32.npz", prefix="ref_")
    with states_of.LlamaCpp(shared / "goldens" / "llama-f32.gguf", context=512) as reference:
        for index, prompt in enumerate(golden.prompts):
            for key, values in reference.states(prompt).items():
                assert np.array_equal(values[0], golden.arrays[key][index]), (index, key)
            assert np.array_equal(reference.greedy(prompt, 12).ids, golden.arrays["greedy"][index])


def test_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    first = tiny_llama(tmp_path / "a.gguf", seed=3, quant="Q8_0").read_bytes()
    assert tiny_llama(tmp_path / "b.gguf", seed=3, quant="Q8_0").read_bytes() == first
    assert tiny_llama(tmp_path / "c.gguf", seed=4, quant="Q8_0").read_bytes() != first


def test_metadata_can_be_set_and_removed_and_tensors_left_out(tmp_path: Path) -> None:
    changes = {"llama.block_count": 7, "llama.context_length": None}
    reader = GGUFReader(str(tiny_llama(tmp_path / "t.gguf", metadata=changes, without=("output_norm.weight",))))
    keys = read_keys(reader)
    assert keys["llama.block_count"][1] == 7
    assert "llama.context_length" not in keys
    assert "output_norm.weight" not in {tensor.name for tensor in reader.tensors}


def test_dequantised_copy_keeps_keys_and_values(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path / "q.gguf", quant={"": "Q4_0", "embd": "Q8_0", "attn_v": "BF16"}, rope_freqs=True)
    copy = GGUFReader(str(dequantised(source, tmp_path / "f.gguf")))
    original = GGUFReader(str(source))
    changed = {name for name, pair in read_keys(original).items() if read_keys(copy)[name] != pair}
    assert changed == {"general.file_type"}
    for tensor, same in zip(original.tensors, copy.tensors, strict=True):
        assert np.array_equal(gguf.dequantize(tensor.data, tensor.tensor_type), same.data)
