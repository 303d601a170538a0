"""Tiny llamas of every shape and quantisation against states recorded from llama.cpp; nothing from outside is needed."""

from collections.abc import Callable
from pathlib import Path

import pytest

import ember
from tests.foundry.cases import CONTEXT, TINY_CASES
from tests.foundry.files import tensors_sha256
from tests.foundry.goldens import Golden
from tests.foundry.tiny import tiny_llama

Compare = Callable[[ember.Model, Golden], None]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make each case's file once."""
    folder, made = tmp_path_factory.mktemp("tiny"), {}

    def make(case: str) -> Path:
        if case not in made:
            made[case] = tiny_llama(folder / f"{case}.gguf", context=CONTEXT, **TINY_CASES[case])
        return made[case]

    return make


def test_every_case_is_recorded(recorded: Path) -> None:
    assert {path.stem for path in recorded.glob("*.npz")} >= set(TINY_CASES)


@pytest.mark.parametrize("case", TINY_CASES)
def test_the_recording_belongs_to_these_weights(case: str, tiny: Callable[[str], Path], recorded: Path) -> None:
    assert Golden.read(recorded / f"{case}.npz").about["tensors_sha256"] == tensors_sha256(tiny(case))


@pytest.mark.parametrize("case", TINY_CASES)
def test_every_site_agrees_with_llama_cpp(
    case: str, route: str, tiny: Callable[[str], Path], recorded: Path, agrees: Compare
) -> None:
    agrees(ember.open(tiny(case), route=route), Golden.read(recorded / f"{case}.npz"))
