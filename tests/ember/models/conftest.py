"""One plain file of each family, whose keys and tensors the tests here remove, rename and change."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.foundry.families import Tiny, tiny_family
from tests.foundry.families_cases import PLAIN


@pytest.fixture(scope="session")
def plain() -> dict[str, Tiny]:
    return PLAIN


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of a family, plain or as given, with the changes that `tiny_family` takes."""

    def write(tiny: str | Tiny, name: str = "m", **changes: Any) -> Path:
        return tiny_family(tmp_path / f"{name}.gguf", PLAIN[tiny] if isinstance(tiny, str) else tiny, **changes)

    return write


@pytest.fixture(params=list(PLAIN))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)
