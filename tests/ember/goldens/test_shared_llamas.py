"""The llama cases of the goldens that lie beside the repository, against llama.cpp's values of f32 x f32."""

from collections.abc import Callable
from pathlib import Path

import pytest

import ember
from tests.foundry.goldens import Golden


@pytest.mark.parametrize("case", ["llama-f32", "llama-tied-q8_0", "llama-q4_k"])
def test_every_site_agrees_with_llama_cpp(
    case: str, route: str, shared: Path, agrees: Callable[[ember.Model, Golden], None]
) -> None:
    golden = Golden.read(shared / "goldens" / f"{case}.npz", prefix="ref_")
    agrees(ember.open(shared / "goldens" / f"{case}.gguf", route=route), golden)
