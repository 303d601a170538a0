"""Files for the reader's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.foundry.gguf_bytes import Gguf

Write = Callable[[Gguf | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Put a file on disk and return its path; each call makes a new one."""

    def write_file(data: Gguf | bytes) -> Path:
        path = tmp_path / f"model-{len(list(tmp_path.iterdir()))}.gguf"
        path.write_bytes(data.to_bytes() if isinstance(data, Gguf) else data)
        return path

    return write_file


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep hashes out of the user's cache."""
    monkeypatch.setenv("EMBER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
