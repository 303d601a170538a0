"""The self-test at start-up: whether a row keeps its bits whatever other rows share its product.

OpenBLAS's AVX-512 kernels pass; its AVX2 kernels do not. Where the test passes for the shapes of the model at hand,
contract 2 holds: a prompt's bits do not depend on its unit. Elsewhere contract 1 does: the plan fixes the units.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from ember.engine.padding import least_rows
from ember.work import Floats

ROWS: Final = 70
"""Rows of the test product beyond the least: more than two register blocks of any kernel."""
LARGEST_N: Final = 1024
"""Columns tested of a wide weight: more than the width of any kernel's panel."""


def rows_keep_bits(shapes: Iterable[tuple[int, int]]) -> bool:
    """Whether products with weights of the given (out, in) shapes give each row the same bits in any company."""
    rng = np.random.default_rng(20261129)
    return all(_keeps(rng, min(out, LARGEST_N), columns) for out, columns in sorted(set(shapes)))


def _keeps(rng: np.random.Generator, out: int, columns: int) -> bool:
    least = least_rows(out, columns)
    x = rng.standard_normal((least + ROWS, columns), np.float32)
    w = rng.standard_normal((out, columns), np.float32)
    whole = x @ w.T
    return all(
        _same(whole, x, w, start, least + more) for start, more in ((0, 0), (1, 2), (5, 17), (33, 37), (ROWS, 0))
    )


def _same(whole: Floats, x: Floats, w: Floats, start: int, count: int) -> bool:
    part = x[start : start + count] @ w.T
    return bool(np.array_equal(part, whole[start : start + count]))
