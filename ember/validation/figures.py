"""How far two arrays of states are apart, row by row."""

import numpy as np
from numpy.typing import NDArray

from ember.work import Floats


def disagreement(ours: Floats, theirs: Floats) -> NDArray[np.float64]:
    """Give max|d| / rms of each row [..., d] -> [...]; the rms is that of the reference. NaN counts as infinite."""
    difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max(-1)
    scale = np.sqrt((theirs.astype(np.float64) ** 2).mean(-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        result: NDArray[np.float64] = np.nan_to_num(difference / scale, nan=np.inf)
    return result


def cosine(ours: Floats, theirs: Floats) -> NDArray[np.float64]:
    """Give the cosine between each pair of rows [..., d] -> [...]. NaN counts as -1."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    result: NDArray[np.float64] = np.nan_to_num(found, nan=-1.0)
    return result


def allowance(length: int) -> float:
    """Say how far llama.cpp itself may be from the formulas on a prompt of `length`, in max|d| / rms.

    It forms RoPE angles by repeated f32 multiplication, which are off by 5e-8 to 1e-7 rad a position: nothing up to a
    hundred positions, up to 2.2e-5 at position 530 (measured against float64, tests/foundry/test_recordings.py).
    transformers multiplies float32 positions and frequencies, which is no better.
    """
    return 0.0 if length <= 100 else 4e-8 * length
