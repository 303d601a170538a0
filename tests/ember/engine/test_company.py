"""A prompt's bits do not depend on its company where the self-test passes; elsewhere the code says contract 1."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.foundry.families import Tiny, tiny_family
from tests.foundry.tiny import tiny_llama

ROOT = Path(__file__).resolve().parents[3]
MODELS: dict[str, dict[str, Any]] = {
    "gqa-f32": {"n_heads": 8, "n_kv": 2},
    "mha-q8_0-rope-factors": {"n_heads": 4, "n_kv": 4, "quant": "Q8_0", "rope_freqs": True, "tied": True},
    "wide-head-odd-vocab": {"n_heads": 4, "n_kv": 1, "key_length": 32, "vocab": 517},
}


FAMILIES: dict[str, Tiny] = {
    "gpt2": Tiny("gpt2", n_layers=2, d=48, ffn=192),
    "llama-fused-linear": Tiny("llama", n_layers=2, n_kv=1, fused=True, linear=4.0),
    "qwen2-grouped": Tiny("qwen2", n_layers=2, n_heads=8, n_kv=1, tied=False, vocab=317),
    "qwen3-wide-heads-q8_0": Tiny("qwen3", n_layers=2, d=64, n_kv=4, head_dim=32, ffn=96, quant={"": "Q8_0"}),
    "gemma3-windows-across-tiles": Tiny("gemma3", n_layers=2, window=33, sliding=2, softcap=20.0),
    "gemma3-narrow-windows": Tiny("gemma3", n_layers=2, n_heads=8, n_kv=1, window=4, sliding=(True, False)),
    "gemma4-ple-shared": Tiny(
        "gemma4", n_layers=6, n_kv=(2, 1, 2, 1, 2, 1), head_dim=16, head_dim_swa=8, ffn=(48,) * 4 + (96,) * 2,
        window=8, sliding=(True, False) * 3, ple=16, shared=2, decoys=True, without_v=(3,), softcap=30.0,
    ),
    "gemma4-plain": Tiny("gemma4", n_layers=2, n_kv=1, window=32, sliding=(True, False), without_v=(1,), vocab=317),
}  # fmt: skip


def run(models: Sequence[Path], seed: int, **environment: str) -> list[dict[str, Any]]:
    kept = {key: value for key, value in os.environ.items() if key not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.ember.engine.company", *map(str, models), str(seed)],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_bits_do_not_depend_on_company_where_the_self_test_passes(tmp_path: Path) -> None:
    """Every family, with windows, groups, shared keys and per-layer embeddings; one process for all."""
    models = {name: tiny_llama(tmp_path / f"{name}.gguf", seed=7, **arguments) for name, arguments in MODELS.items()}
    models |= {name: tiny_family(tmp_path / f"{name}.gguf", tiny) for name, tiny in FAMILIES.items()}
    for name, found in zip(models, run(list(models.values()), seed=7), strict=True):
        for route, counts in found["routes"].items():
            if not counts.pop("keeps_bits"):
                pytest.skip(f"this machine's BLAS kernels {found['kernels']} do not keep bits: contract 1 holds here")
            assert set(counts.values()) == {0}, (name, route, counts)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="OpenBLAS's Haswell kernels exist on x86_64 only")
def test_haswell_kernels_are_reported_as_contract_1(tmp_path: Path) -> None:
    (found,) = run([tiny_llama(tmp_path / "m.gguf", seed=7)], seed=3, OPENBLAS_CORETYPE="Haswell")
    assert found["kernels"] == ["Haswell"]
    for counts in found["routes"].values():
        assert counts["keeps_bits"] is False
        # the self-test is right to say so: bits do differ there, and only with company or threads
        assert counts["alone"] > 0
        assert counts["streamed"] == counts["again"] == 0
