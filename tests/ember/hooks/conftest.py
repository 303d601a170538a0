"""Tiny models of the families that hooks are tested on, opened once for each route."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ember
from ember.model import Model
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import PLAIN
from tests.foundry.tiny import tiny_llama

ROUTES = ("reference", "fast")
Open = Callable[[str, str], Model]


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Open a model by name and route: a family's plain file, or `tiny-llama` with three layers and grouped heads."""
    folder = tmp_path_factory.mktemp("hooks")
    models: dict[tuple[str, str], Model] = {}

    def path_of(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            tiny_llama(path, seed=5) if name == "tiny-llama" else tiny_family(path, PLAIN[name])
        return path

    def open_(name: str, route: str) -> Model:
        if (name, route) not in models:
            models[name, route] = ember.open(path_of(name), route=route, threads=1)
        return models[name, route]

    yield open_
    for model in models.values():
        model.close()


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["tiny-llama", "qwen3", "gemma4"])
def model(request: pytest.FixtureRequest, route: str, opened: Open) -> Model:
    """The three families that the contract names, on both routes."""
    return opened(str(request.param), route)


@pytest.fixture(params=list(PLAIN))
def any_family(request: pytest.FixtureRequest, route: str, opened: Open) -> Model:
    return opened(str(request.param), route)
