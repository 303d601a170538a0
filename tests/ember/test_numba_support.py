"""The door to numba: what a kernel is compiled with, where its code is kept, and life without numba."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ember import numba_support

needs_numba = pytest.mark.skipif(not numba_support.HAVE_NUMBA, reason="numba is not installed (extra `fast`)")
WITHOUT_NUMBA = "import sys; sys.modules['numba'] = None; sys.modules['llvmlite'] = None; "
DECODE = """
import numpy as np
from ember.gguf import QUANT_TYPES, decode_fast, decode
from ember.numba_support import HAVE_NUMBA, versions
raw = np.random.default_rng(0).integers(0, 120, 34 * 100, dtype=np.uint8)
a, b = np.empty(3200, np.float32), np.empty(3200, np.float32)
decode.decode(raw, QUANT_TYPES[8], a); decode_fast.decode(raw, QUANT_TYPES[8], b)
assert np.array_equal(a, b)
"""


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_numba_everything_imports_and_decodes_by_numpy() -> None:
    out = python(WITHOUT_NUMBA + DECODE + "print(HAVE_NUMBA, decode_fast.KERNELS, versions())")
    assert out == "False {} {'numba': None, 'llvmlite': None}"


def test_importing_the_reader_does_not_import_numba() -> None:
    assert python("import sys, ember.gguf, ember.gguf.decode; print('numba' in sys.modules)") == "False"


@needs_numba
def test_kernels_keep_the_rules(tmp_path: Path) -> None:
    code = """
from ember.gguf.kernels import k_quants, rounds
for kernel in (rounds.f16, rounds.q8_0, k_quants.q4_k):
    options = kernel.targetoptions
    print(options.get('fastmath'), options['error_model'], options['nogil'], options.get('parallel', False),
          len(kernel.signatures), kernel._can_compile)
"""
    assert set(python(code, EMBER_CACHE_DIR=str(tmp_path)).splitlines()) == {"False numpy True False 1 False"}


@needs_numba
def test_intels_vector_maths_is_off_even_if_asked_for(tmp_path: Path) -> None:
    code = "import ember.numba_support, numba; print(numba.config.USING_SVML, numba.config.DISABLE_INTEL_SVML)"
    assert python(code, NUMBA_DISABLE_INTEL_SVML="0", EMBER_CACHE_DIR=str(tmp_path)) == "False 1"


@needs_numba
def test_machine_code_is_kept_where_the_hash_of_all_kernel_sources_says(tmp_path: Path) -> None:
    environment = {"EMBER_CACHE_DIR": str(tmp_path)}
    hits = "from ember.gguf.kernels import rounds; print(sum(rounds.q8_0.stats.cache_hits.values()))"
    assert python(hits, **environment) == "0"
    (folder,) = (tmp_path / "numba").iterdir()
    assert folder.name.endswith(numba_support.kernel_source_hash()[:16])
    assert list(folder.rglob("*.nbc"))
    assert python(hits, **environment) == "1"


@needs_numba
def test_nowhere_to_keep_code_is_no_obstacle(tmp_path: Path) -> None:
    """A read-only home and a read-only temporary directory: compiled afresh, same results."""
    code = "import ember.cache_directory as c; c.cache_directory = lambda *p: None;" + DECODE + "print(HAVE_NUMBA)"
    assert python(code, EMBER_CACHE_DIR=str(tmp_path)) == "True"
    assert list(tmp_path.iterdir()) == []


def test_the_source_hash_covers_helpers_in_other_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hashes = []
    for text in ("# numba_support\nx = 1\n", "# numba_support\nx = 2\n", "# numba_support\nx = 2\n"):
        (tmp_path / "helper.py").write_text(text)
        monkeypatch.setattr(numba_support, "__file__", str(tmp_path / "numba_support.py"))
        numba_support.kernel_source_hash.cache_clear()
        hashes.append(numba_support.kernel_source_hash())
    monkeypatch.undo()
    numba_support.kernel_source_hash.cache_clear()
    assert hashes[0] != hashes[1] == hashes[2]


@needs_numba
def test_kernels_load_without_scipy_and_leave_it_to_those_who_need_it() -> None:
    code = """
import sys
import numpy as np
import ember.engine.kernels
print("scipy.linalg" in sys.modules)
from numba import njit
print(njit(lambda a: np.dot(a, a))(2 * np.eye(2))[1, 1], njit(lambda a: np.linalg.inv(a))(2 * np.eye(2))[1, 1])
"""
    pytest.importorskip("scipy")
    assert python(code).split() == ["False", "4.0", "0.5"]
