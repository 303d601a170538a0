"""The numerics record: what the bits of a result depend on besides the file and the prompts."""

import platform
from functools import cache
from typing import Any, Final

import numpy as np
import threadpoolctl

from ember.numba_support import versions as kernel_versions

NUMERICS_VERSION: Final = 2
"""Changes whenever the same input would give other bits."""
FEATURES: Final = ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "asimd", "sve")


def blas_record() -> list[dict[str, Any]]:
    """Describe the BLAS that NumPy calls: library, version, kernel, threads now in force.

    Other libraries of a process (scipy, which numba imports) bring a BLAS of their own, listed in no fixed order; where
    NumPy's can be told by its version it stands alone.
    """
    found = sorted(
        (info for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"),
        key=lambda info: ("numpy" not in info["filepath"], info["filepath"]),
    )
    built: Any = np.show_config(mode="dicts")
    wanted = built["Build Dependencies"]["blas"].get("version")
    own = [info for info in found if info.get("version") == wanted][:1]
    return [
        {
            "library": info["internal_api"],
            "version": info.get("version"),
            "kernel": info.get("architecture"),
            "threads": info["num_threads"],
        }
        for info in own or found
    ]


@cache
def cpu_record() -> dict[str, Any]:
    """Name the processor and the vector extensions that kernels choose by."""
    model, flags = platform.processor() or platform.machine(), set[str]()
    try:
        with open("/proc/cpuinfo") as lines:  # noqa: PTH123 - a pseudo-file, read once
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    flags = set(value.split())
                    break
                if key.strip() == "model name":
                    model = value.strip()
    except OSError:
        pass
    return {"model": model, "features": [name for name in FEATURES if name in flags]}


def record(route: str, threads: int, *, keeps_bits: bool) -> dict[str, Any]:
    """Return the numerics record of a manifest."""
    return {
        "numerics_version": NUMERICS_VERSION,
        "route": route,
        "mode": "f32",
        "contract": 2 if keeps_bits else 1,
        "blas_threads": threads,
        "blas": blas_record(),
        "cpu": cpu_record(),
        "versions": {"numpy": np.__version__, "python": platform.python_version(), **kernel_versions()},
    }
