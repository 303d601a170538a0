"""A prompt's bits do not depend on its company where the self-test passes; elsewhere the code says contract 1."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.foundry.tiny import tiny_llama

ROOT = Path(__file__).resolve().parents[3]
MODELS: dict[str, dict[str, Any]] = {
    "gqa-f32": {"n_heads": 8, "n_kv": 2},
    "mha-q8_0-rope-factors": {"n_heads": 4, "n_kv": 4, "quant": "Q8_0", "rope_freqs": True, "tied": True},
    "wide-head-odd-vocab": {"n_heads": 4, "n_kv": 1, "key_length": 32, "vocab": 517},
}


def run(model: Path, seed: int, **environment: str) -> dict[str, Any]:
    kept = {key: value for key, value in os.environ.items() if key not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.ember.engine.company", str(model), str(seed)],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", MODELS)
def test_bits_do_not_depend_on_company_where_the_self_test_passes(name: str, tmp_path: Path) -> None:
    found = run(tiny_llama(tmp_path / "m.gguf", seed=7, **MODELS[name]), seed=len(name))
    for route, counts in found["routes"].items():
        if not counts.pop("keeps_bits"):
            pytest.skip(f"this machine's BLAS kernels {found['kernels']} do not keep bits: contract 1 holds here")
        assert set(counts.values()) == {0}, (route, counts)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="OpenBLAS's Haswell kernels exist on x86_64 only")
def test_haswell_kernels_are_reported_as_contract_1(tmp_path: Path) -> None:
    found = run(tiny_llama(tmp_path / "m.gguf", seed=7), seed=3, OPENBLAS_CORETYPE="Haswell")
    assert found["kernels"] == ["Haswell"]
    for counts in found["routes"].values():
        assert counts["keeps_bits"] is False
        # the self-test is right to say so: bits do differ there, and only with company or threads
        assert counts["alone"] > 0
        assert counts["streamed"] == counts["again"] == 0
