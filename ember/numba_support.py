"""The one door to numba: how a kernel is compiled, where its machine code is kept, what happens without numba.

    @helper                                   # a scalar function that kernels call; compiled into them
    def _double(x): ...

    @kernel("void(uint8[::1], float32[::1])") # compiled (or loaded from the cache) when the module is imported
    def decode_q8_0(raw, out): ...

An argument that may be read-only, as every view of a mapped file is, must be declared so, in words:
`Array(uint8, 1, 'C', readonly=True)`; `uint8[::1]` would refuse it.

Every kernel: no fastmath, NumPy's error model (no zero-division branches), the GIL released, explicit C-contiguous
signatures. Machine code is cached in a directory keyed by a hash of all sources that hold kernels, because numba
notices a change in a kernel's own file only, not in a helper's. Without numba the decorators return the function as it
is and `HAVE_NUMBA` is False: callers take their NumPy path; the undecorated functions are too slow to serve.
"""

import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

from ember.cache_directory import cache_directory

# numba reads it when first imported: Intel's vector maths would give other bits where it happens to be installed
os.environ["NUMBA_DISABLE_INTEL_SVML"] = "1"
try:
    _numba: Any = importlib.import_module("numba")
except ImportError:
    _numba = None

HAVE_NUMBA: Final[bool] = _numba is not None
F = TypeVar("F", bound=Callable[..., Any])
_RULES: Final[dict[str, Any]] = {"nopython": True, "fastmath": False, "error_model": "numpy", "nogil": True}


def kernel(signature: str) -> Callable[[F], F]:
    """Compile a function now, for `signature` only: e.g. "void(float32[:, ::1], float32[::1], int64)"."""

    def compile_now(function: F) -> F:
        if not HAVE_NUMBA:
            return function
        _look_for_scipy_without_importing_it()
        folder = kernel_cache()
        if folder is None:
            compiled: F = _numba.jit(signature, **_RULES)(function)
            return compiled
        before = _numba.config.CACHE_DIR
        _numba.config.CACHE_DIR = str(folder)
        try:
            compiled = _numba.jit(signature, cache=True, **_RULES)(function)
        finally:
            _numba.config.CACHE_DIR = before
        return compiled

    return compile_now


@cache
def _look_for_scipy_without_importing_it() -> None:
    """Spare a process 0.15 s, and a second BLAS: numba imports scipy.linalg only to know whether it is there.

    No kernel here calls BLAS. Where somebody else's does, numba imports it then.
    """
    linalg: Any = importlib.import_module("numba.np.linalg")
    found = find_spec("scipy") is not None
    if not found or not hasattr(linalg, "ensure_blas") or "numba.np.arraymath" in sys.modules:
        return
    ensure = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        arraymath: Any = importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = ensure
    if hasattr(arraymath, "ensure_blas"):
        arraymath.ensure_blas = ensure


def helper(function: F) -> F:
    """Make a function callable from kernels; it is compiled into each for the types it is called with."""
    if not HAVE_NUMBA:
        return function
    made: F = _numba.njit(fastmath=False, error_model="numpy", nogil=True)(function)
    return made


def intrinsic(function: F) -> F:
    """Make a function that writes LLVM code callable from kernels (`numba.extending.intrinsic`)."""
    if not HAVE_NUMBA:
        return function
    made: F = importlib.import_module("numba.extending").intrinsic(function)
    return made


def literal_intrinsic(function: F) -> F:
    """Like `intrinsic`, for a function whose constant arguments decide the code: it sees their literal types."""
    if not HAVE_NUMBA:
        return function
    made: F = importlib.import_module("numba.extending").intrinsic(prefer_literal=True)(function)
    return made


def inlined(function: F) -> F:
    """Make a function whose body is put into each kernel that calls it, so that constants stay constants there."""
    if not HAVE_NUMBA:
        return function
    made: F = _numba.njit(inline="always", error_model="numpy")(function)
    return made


@cache
def kernel_cache() -> Path | None:
    """Return the directory of this source's machine code; None where nothing can be written."""
    return cache_directory("numba", f"{_numba.__version__}-{kernel_source_hash()[:16]}")


@cache
def kernel_source_hash() -> str:
    """Return the sha256 over all of Ember's sources that mention this module: every kernel and every helper."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(root.rglob("*.py")):
        text = source.read_bytes()
        if b"numba_support" in text:
            digest.update(f"{source.relative_to(root).as_posix()}\0{len(text)}\0".encode())
            digest.update(text)
    return digest.hexdigest()


def versions() -> dict[str, str | None]:
    """Return the versions of numba and llvmlite for the numerics record; None where absent."""
    if not HAVE_NUMBA:
        return {"numba": None, "llvmlite": None}
    return {"numba": _numba.__version__, "llvmlite": importlib.import_module("llvmlite").__version__}
