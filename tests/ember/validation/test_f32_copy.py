"""The F32 copy that llama.cpp is given: gguf-py reads from it the keys of the original and its decoded values."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGUFReader

from ember.gguf import open_gguf
from ember.validation.f32_copy import write_f32_copy
from tests.foundry.cases import TINY_CASES
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import FAMILY_CASES
from tests.foundry.files import read_keys
from tests.foundry.tiny import tiny_llama


def check(source: Path, target: Path) -> None:
    with open_gguf(source) as file:
        write_f32_copy(file, target)
    original, copy = GGUFReader(str(source)), GGUFReader(str(target))
    theirs, ours = read_keys(original), read_keys(copy)
    assert {key for key in theirs if ours.get(key) != theirs[key]} <= {"general.file_type"}
    assert ours.keys() == theirs.keys()
    for tensor, same in zip(original.tensors, copy.tensors, strict=True):
        assert (tensor.name, tensor.shape.tolist()) == (same.name, same.shape.tolist())
        assert same.tensor_type == gguf.GGMLQuantizationType.F32
        decoded = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        assert decoded.tobytes() == same.data.tobytes(), tensor.name


@pytest.mark.parametrize("case", ["mixed", "q4_k-q6_k"])
def test_copies_of_llamas(case: str, tmp_path: Path) -> None:
    check(tiny_llama(tmp_path / "q.gguf", **TINY_CASES[case]), tmp_path / "f.gguf")


def test_copies_with_arrays_of_numbers_and_flags(tmp_path: Path) -> None:
    case = FAMILY_CASES["gemma4-ple-shared-mixed"]
    check(tiny_family(tmp_path / "q.gguf", case.tiny, metadata=case.metadata), tmp_path / "f.gguf")
