"""Two-dimensional maps by principal components, and how far apart two kinds of stimuli lie."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from pipelines.geometry.similarity import Doubles, Floats


@dataclass(frozen=True, slots=True)
class Map:
    """Stimuli on a plane."""

    points: Doubles
    """[stimuli, components]"""
    explained: Doubles
    """[components] share of the variance along each."""


def pca_map(x: Floats, components: int = 2) -> Map:
    """Project states [stimuli, width] on their leading principal components.

    Signs are fixed: of each component's weights the one with the largest size is positive (of equals the first).
    """
    if not 1 <= components <= min(x.shape):
        raise InputError(
            f"found {components} components of {x.shape[0]} states of {x.shape[1]} numbers; expected fewer"
        )
    centred = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    total = float(np.vdot(centred, centred))
    axes = _axes(centred, components)
    leading = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    axes = axes * np.where(leading < 0, -1.0, 1.0)
    points = centred @ axes
    explained = (points**2).sum(axis=0) / total if total > 0 else np.zeros(components)
    return Map(points, explained)


def _axes(centred: Doubles, count: int) -> Doubles:
    """Unit axes [width, count] of largest variance, largest first."""
    if len(centred) >= centred.shape[1]:
        vectors: Doubles = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :count]
        return vectors
    values, scores = np.linalg.eigh(centred @ centred.T)
    sizes = np.sqrt(np.maximum(values[::-1][:count], 1e-300))
    axes: Doubles = centred.T @ scores[:, ::-1][:, :count] / sizes
    return axes


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far two kinds of stimuli lie apart."""

    distance: float
    """Length of the difference of means, in standard deviations of each number within a kind, over sqrt(width)."""
    expected: float
    """Its mean when kinds are shuffled: what stimuli of no difference would show."""
    p: float
    """Share of shuffles, the data among them, with at least that distance."""


def divergence(x: Floats, kind: NDArray[np.bool_], random: np.random.Generator, draws: int = 199) -> Divergence:
    """Compare states [stimuli, width] of stimuli that are of a kind (answered correctly) with those that are not."""
    if kind.all() or not kind.any() or len(kind) < 4:
        raise InputError(f"found {int(kind.sum())} of {len(kind)} stimuli of the kind; expected some of both")
    states = x.astype(np.float64)
    found = _distance(states, kind)
    shuffled = np.array([_distance(states, random.permutation(kind)) for _ in range(draws)])
    p = (1 + int((shuffled >= found).sum())) / (1 + draws)
    return Divergence(found, float(shuffled.mean()), p)


def _distance(x: Floats, kind: NDArray[np.bool_]) -> float:
    one, other = x[kind], x[~kind]
    within = (((one - one.mean(axis=0)) ** 2).sum(axis=0) + ((other - other.mean(axis=0)) ** 2).sum(axis=0)) / (
        len(x) - 2
    )
    apart = (one.mean(axis=0) - other.mean(axis=0)) ** 2
    shares = np.divide(apart, within, out=np.zeros(len(apart)), where=within > 0)
    return float(np.sqrt(shares.mean()))
