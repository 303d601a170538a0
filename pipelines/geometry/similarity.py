"""How alike two sets of states of the same stimuli are: linear CKA, RSA, and canonical correlations.

None of them cares about the axes or the overall scale of the states; CKA and RSA work with stimuli only, so states of
different width can be compared.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError

Doubles = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]

KEPT: Final = 0.99
"""Part of the variance that SVCCA keeps."""


def centred_gram(x: Floats) -> Doubles:
    """Inner products [stimuli, stimuli] of states after their mean is taken away."""
    centred = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    found: Doubles = centred @ centred.T
    return found


def linear_cka(x: Floats, y: Floats) -> float:
    """Linear centred kernel alignment (Kornblith et al. 2019) of states [stimuli, any width]; from 0 to 1."""
    _same_stimuli(x, y)
    return cka_of_grams(centred_gram(x), centred_gram(y))


def cka_of_grams(a: Doubles, b: Doubles) -> float:
    """Return the alignment of two centred Gram matrices; NaN if one of them is zero."""
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.vdot(a, b)) / size if size > 0 else float("nan")


def distances(x: Floats) -> Doubles:
    """Correlation distance of every two stimuli, [pairs] in the order of `numpy.triu_indices(n, 1)`.

    1 minus the Pearson correlation of two states over their numbers; NaN where a state is constant.
    """
    rows = x.astype(np.float64) - x.mean(axis=1, keepdims=True, dtype=np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.divide(rows, length, out=np.full(rows.shape, np.nan), where=length > 0)
    cosines: Doubles = (rows @ rows.T)[np.triu_indices(len(rows), 1)]
    return 1 - cosines


def label_distances(codes: NDArray[np.int64]) -> Doubles:
    """The model of a label: 0 for two stimuli with the same value, 1 for others; [pairs] as `distances`."""
    left, right = np.triu_indices(len(codes), 1)
    differ: Doubles = (codes[left] != codes[right]).astype(np.float64)
    return differ


def rsa(a: Doubles, b: Doubles) -> float:
    """Spearman correlation of two lists of distances (Kriegeskorte et al. 2008); NaN if one of them is constant."""
    if a.shape != b.shape:
        raise InputError(f"found {len(a)} and {len(b)} distances; both sides need the same stimuli in the same order")
    return correlation(ranks(a), ranks(b))


def ranks(values: Doubles) -> Doubles:
    """Rank values from 1; equal ones share the mean of their ranks."""
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(times)
    means: Doubles = ends - (times - 1) / 2
    return means[place]


def correlation(a: Doubles, b: Doubles) -> float:
    """Pearson correlation; NaN if one side is constant."""
    left, right = a - a.mean(), b - b.mean()
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(np.vdot(left, right)) / size if size > 0 else float("nan")


def svcca(x: Floats, y: Floats, kept: float = KEPT) -> Doubles:
    """Canonical correlations, largest first, between the directions that hold `kept` of each side's variance.

    SVCCA (Raghu et al. 2017). Meaningless unless stimuli are many times the directions kept: with as many directions
    as stimuli every correlation is 1.
    """
    _same_stimuli(x, y)
    products = _directions(x, kept).T @ _directions(y, kept)
    found: Doubles = np.linalg.svd(products, compute_uv=False).clip(0.0, 1.0)
    return found


def _directions(x: Floats, kept: float) -> Doubles:
    """Orthonormal scores [stimuli, directions] of the leading principal directions."""
    centred = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    scores, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    total = float((sizes**2).sum())
    if total == 0:
        raise InputError("found states that are all the same; canonical correlations need states that vary")
    rank = int(np.count_nonzero(sizes > 1e-10 * sizes[0]))
    count = int(np.searchsorted(np.cumsum(sizes**2), kept * total)) + 1
    leading: Doubles = scores[:, : min(count, rank)]
    return leading


def _same_stimuli(x: Floats, y: Floats) -> None:
    if len(x) != len(y):
        raise InputError(f"found states of {len(x)} and of {len(y)} stimuli; both sides need the same, in one order")
