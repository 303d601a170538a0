"""The goldens that lie beside the repository, of every family, against llama.cpp's values of f32 x f32."""

from collections.abc import Callable
from pathlib import Path

import pytest

import ember
from tests.foundry.goldens import Golden

CASES = ("llama-f32", "llama-tied-q8_0", "llama-q4_k", "gpt2-f32", "qwen2-f32", "qwen3-f32")


@pytest.mark.parametrize("case", CASES)
def test_every_site_agrees_with_llama_cpp(
    case: str, route: str, shared: Path, agrees: Callable[[ember.Model, Golden], None]
) -> None:
    golden = Golden.read(shared / "goldens" / f"{case}.npz", prefix="ref_")
    agrees(ember.open(shared / "goldens" / f"{case}.gguf", route=route), golden)
