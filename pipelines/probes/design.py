"""A matrix of features made ready for many fits: conditioned once, standardised anew for every set of training rows.

Columns are centred and scaled over all rows first. That is a change of units which every standardisation of a subset
undoes exactly, and no label has a part in it; its use is that sums in single precision stay accurate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from pipelines.probes.lbfgs import Doubles

Matrix = NDArray[np.floating[Any]]
Rows = NDArray[np.intp]

EXACT: Final = 1 << 20
"""Matrices of up to so many numbers are kept in double precision, larger ones in single."""
CHUNK: Final = 1024
"""Rows that are converted to double precision at a time."""
WIDEST: Final = 8192
"""The smaller of rows and columns may not exceed this: an eigendecomposition of that size is made."""


@dataclass(frozen=True, slots=True)
class Basis:
    """Principal directions of a design and the curvature along each."""

    directions: Matrix
    """[width, rank], orthonormal columns."""
    curvatures: Doubles
    """[rank] mean squared projections of rows."""


class Design:
    """Features of all stimuli, [rows, width]."""

    def __init__(self, features: Matrix) -> None:
        """Raises InputError for numbers that are not finite, and for matrices too large in both directions."""
        if min(features.shape) > WIDEST:
            raise InputError(
                f"found {features.shape[0]} stimuli of {features.shape[1]} numbers; probes need one of the two to be "
                f"at most {WIDEST}: choose a narrower site, or fewer stimuli with `where`"
            )
        self.mean, self.scale = _moments(features)
        if not np.isfinite(self.scale).all():
            raise InputError("the states hold numbers that are not finite; probes cannot use them")
        kind = np.float64 if features.size <= EXACT else np.float32
        self.x: Matrix = np.empty(features.shape, kind)
        for start in range(0, len(features), CHUNK):
            rows = features[start : start + CHUNK].astype(np.float64)
            self.x[start : start + CHUNK] = (rows - self.mean) / self.scale

    @property
    def width(self) -> int:
        """Features of a row."""
        return int(self.x.shape[1])

    @property
    def exact(self) -> bool:
        """Whether products are made in double precision."""
        return self.x.dtype == np.float64

    @cached_property
    def basis(self) -> Basis:
        """Principal directions over all rows; they speed fits up and decide nothing."""
        n, width = self.x.shape
        if n >= width:
            values, vectors = np.linalg.eigh(gram(self.x) / n)
            keep = values > 1e-9 * values[-1]
            return Basis(vectors[:, keep].astype(self.x.dtype), values[keep])
        wide = self.x.astype(np.float64)
        values, vectors = np.linalg.eigh(wide @ wide.T / n)
        keep = values > 1e-9 * values[-1]
        directions = wide.T @ (vectors[:, keep] / np.sqrt(n * values[keep]))
        return Basis(directions.astype(self.x.dtype), values[keep])

    def training(self, rows: Rows, seed: int = 0) -> "Training":
        """Return some rows with their own mean and scale."""
        chosen = self.x[rows]
        return Training(chosen, *_moments(chosen), self, seed)


@dataclass(frozen=True, slots=True)
class Training:
    """Rows to fit on, in the units of their design; standardised rows are (x - mean) / scale."""

    x: Matrix
    mean: Doubles
    scale: Doubles
    design: Design
    seed: int = 0
    """Decides where the search for a probe with many minima starts."""

    def linear(self, weights: Doubles, bias: Doubles, *, converged: bool = True) -> "Linear":
        """Turn weights of standardised rows into a probe in the design's units."""
        scaled = weights / self.scale[:, None]
        return Linear(scaled, bias - self.mean @ scaled, converged)


@dataclass(frozen=True, slots=True)
class Linear:
    """A fitted probe in the units of its design: scores are x @ weights + bias."""

    weights: Doubles
    """[width, classes]"""
    bias: Doubles
    """[classes]; -inf for classes that were not in the training rows."""
    converged: bool = True

    def in_units_of(self, design: Design) -> tuple[Doubles, Doubles]:
        """Weights [width, classes] and bias for the features as they were captured."""
        weights = self.weights / design.scale[:, None]
        return weights, self.bias - design.mean @ weights


@dataclass(frozen=True, slots=True)
class Layered:
    """A fitted probe with a hidden layer: scores are silu(inner) @ weights + bias."""

    inner: Linear
    """To the units."""
    weights: Doubles
    """[units, classes]"""
    bias: Doubles
    """[classes]; -inf for classes that were not in the training rows."""
    converged: bool = True


Model = Linear | Layered


def scores(x: Matrix, models: Sequence[Model]) -> list[Doubles]:
    """Scores [rows, classes] of each model, those of linear ones all from one product."""
    firsts = [model.inner if isinstance(model, Layered) else model for model in models]
    return [
        (found * sigmoid(found)) @ model.weights + model.bias if isinstance(model, Layered) else found
        for found, model in zip(_linear_scores(x, firsts), models, strict=True)
    ]


def sigmoid(x: Matrix) -> Doubles:
    """1 / (1 + exp(-x)), without overflow."""
    found: Doubles = 0.5 * (1 + np.tanh(0.5 * x))
    return found


def _linear_scores(x: Matrix, models: Sequence[Linear]) -> list[Doubles]:
    joined = np.concatenate([model.weights for model in models], axis=1).astype(x.dtype)
    found = x @ joined
    ends = np.cumsum([model.weights.shape[1] for model in models])[:-1]
    parts = np.split(found, ends, axis=1)
    return [part + model.bias for part, model in zip(parts, models, strict=True)]


def gram(x: Matrix) -> Doubles:
    """Return x.T @ x, summed in double precision."""
    total = np.zeros((x.shape[1], x.shape[1]))
    for start in range(0, len(x), CHUNK):
        rows = x[start : start + CHUNK].astype(np.float64)
        total += rows.T @ rows
    return total


def _moments(x: Matrix) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation of columns; 1 where a column is constant up to rounding (as scikit-learn has it)."""
    n, width = x.shape
    total = np.zeros(width)
    for start in range(0, n, CHUNK):
        total += x[start : start + CHUNK].astype(np.float64).sum(axis=0)
    mean = total / n
    square = np.zeros(width)
    for start in range(0, n, CHUNK):
        square += ((x[start : start + CHUNK].astype(np.float64) - mean) ** 2).sum(axis=0)
    variance = square / n
    eps = float(np.finfo(np.float64).eps)
    constant = variance <= n * eps * variance + (n * mean * eps) ** 2
    return mean, np.where(constant, 1.0, np.sqrt(variance))
