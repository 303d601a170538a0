"""An experiment that does nothing changes no bit: alone everywhere, in a unit under contract 2."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ember.model import Model
from tests.ember.hooks.noop import prompts_of, run
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import PLAIN
from tests.foundry.tiny import tiny_llama

ROOT = Path(__file__).resolve().parents[3]
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def test_no_bit_of_a_prompt_alone(any_family: Model) -> None:
    """With whatever kernels this process has: alone, the hook changes no company."""
    for prompt in prompts_of(any_family):
        assert run(any_family, [prompt], [False]) == run(any_family, [prompt], [True])


def test_no_bit_in_a_unit_whose_company_it_does_not_change(any_family: Model) -> None:
    """Nothing is shared and every row is captured, so that the hook changes no company either."""
    prompts = [prompt for number, prompt in enumerate(prompts_of(any_family)) if number in (0, 3, 5)]
    free = run(any_family, prompts, [False] * 3)
    assert run(any_family, prompts, [True] * 3) == run(any_family, prompts, [False, True, False]) == free


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the program says of every family with the machine's own kernels."""
    folder = tmp_path_factory.mktemp("noop")
    models = [tiny_family(folder / f"{name}.gguf", tiny) for name, tiny in PLAIN.items()]
    models.append(tiny_llama(folder / "q8.gguf", seed=7, quant="Q8_0", context=128))
    done = subprocess.run(
        [sys.executable, "-m", "tests.ember.hooks.noop", *map(str, models)],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key not in UNSET},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_no_bit_alone_with_the_machines_own_kernels(found: list[dict[str, Any]]) -> None:
    assert len(found) == 2 * (len(PLAIN) + 1)
    for record in found:
        assert record["alone"] == 0, record


def test_no_bit_in_a_unit_under_contract_2(found: list[dict[str, Any]]) -> None:
    checked = [record for record in found if record["keeps_bits"]]
    if not checked:
        pytest.skip(f"this machine's BLAS kernels {found[0]['kernels']} do not keep bits: contract 1 holds here")
    for record in checked:
        assert record["unit"] == {"all": 0, "one": 0, "all but one": 0}, record
