"""The padding rule: how many rows a product needs so that a row's bits do not depend on its company.

OpenBLAS sends products of at most 1e6 multiplications to kernels of their own, and single rows to gemv; both round
differently. Above that, its AVX-512 kernels give each row the same bits in any company (`ember.engine.invariance`).
"""

from typing import Final

SMALL_PRODUCT: Final = 1_000_000
"""M·N·K up to which OpenBLAS may take its small-matrix kernels (interface/gemm.c, 0.3.31)."""


def least_rows(out_features: int, in_features: int) -> int:
    """Fewest rows M for a product [M, in] x [in, out] to leave the small-matrix path and gemv."""
    return max(2, SMALL_PRODUCT // (out_features * in_features) + 1)
