"""A tiny model with a recording that lies in the repository."""

from pathlib import Path

import pytest

from tests.foundry.cases import CONTEXT, TINY_CASES
from tests.foundry.tiny import tiny_llama

RECORDED = Path(__file__).parents[1] / "goldens" / "recorded"


@pytest.fixture(scope="session")
def recorded() -> Path:
    return RECORDED / "q4_0.npz"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("q4_0") / "tiny-q4_0.gguf", context=CONTEXT, **TINY_CASES["q4_0"])
