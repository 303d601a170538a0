"""Coordinates in which a logistic regression is solved; its optimum is the same in all of them.

Its penalty is a sphere, so a rotation of standardised rows changes nothing but the numbers that weights are written in,
and of directions in which no row lies the best weights have no part. `Rotated` takes the principal axes of the training
rows themselves: no more of them than rows, and the curvature along each is known, so that a preconditioner is a
division. It costs an eigendecomposition for each set of rows, which pays where the smaller side is short. Elsewhere
`Straight` keeps features as they are and borrows the axes of the whole design to precondition with.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from pipelines.probes.design import Matrix, Training
from pipelines.probes.lbfgs import Doubles

SHORT: Final = 1536
"""Rows of which the Gram matrix is always decomposed, if features are no fewer: some 0.5 s."""
DROPPED: Final = 1e-12
"""Axes along which rows spread by less than this part of the widest are rounding."""


class Coordinates(Protocol):
    """Points are [size + 1, columns]: weights along each coordinate, and the intercept last."""

    @property
    def size(self) -> int:
        """Coordinates of a row."""

    @property
    def exact(self) -> bool:
        """Whether products are made in double precision."""

    def logits(self, point: Doubles) -> Matrix:
        """Scores [rows, columns]."""

    def gradient(self, residuals: Matrix) -> Doubles:
        """Derivative by the point [size + 1, columns] of a function whose derivative by the logits is given."""

    def divide(self, gradient: Doubles, penalty: float, bend: Doubles) -> Doubles:
        """Apply the inverse of the Hessian's diagonal blocks where all weights are zero.

        `bend` [columns] is p * (1 - p) of each class.
        """

    def size_of(self, gradient: Doubles) -> float:
        """A bound of the largest entry that the gradient has by weights of standardised features."""

    def weights(self, point: Doubles) -> Doubles:
        """Weights [width, columns] of standardised features."""


def coordinates(training: Training) -> Coordinates:
    """Choose by the shape of the rows alone."""
    rows, width = training.x.shape
    return Rotated(training) if training.design.exact or rows <= min(width, SHORT) else Straight(training)


class Rotated:
    """Principal axes of standardised training rows, in double precision."""

    exact: Final = True

    def __init__(self, training: Training) -> None:
        self._training = training
        x = (training.x.astype(np.float64) - training.mean) / training.scale
        rows, width = x.shape
        values, vectors = np.linalg.eigh(x @ x.T if rows <= width else x.T @ x)
        kept = values > DROPPED * max(values[-1], 1.0)
        values, vectors = values[kept], np.ascontiguousarray(vectors[:, kept])
        self._axes = None if rows <= width else vectors
        self._z = np.ones((rows, len(values) + 1))
        self._z[:, :-1] = vectors * np.sqrt(values) if rows <= width else x @ vectors
        self._values = values
        self._curvatures = np.append(values / rows, 1.0)[:, None]

    @property
    def size(self) -> int:
        """Axes along which rows spread."""
        return len(self._values)

    def logits(self, point: Doubles) -> Matrix:
        """Scores [rows, columns]."""
        found: Doubles = self._z @ point
        return found

    def gradient(self, residuals: Matrix) -> Doubles:
        """Derivative by the point."""
        found: Doubles = self._z.T @ residuals
        return found

    def divide(self, gradient: Doubles, penalty: float, bend: Doubles) -> Doubles:
        """Divide, coordinate by coordinate."""
        curved = self._curvatures * bend
        curved[:-1] += penalty
        found: Doubles = gradient / curved
        return found

    def size_of(self, gradient: Doubles) -> float:
        """The greatest length of a column, which rotations keep."""
        return float(np.sqrt((gradient**2).sum(axis=0).max(initial=0.0)))

    def weights(self, point: Doubles) -> Doubles:
        """Weights of standardised features: along the axes, or as sums of rows."""
        if self._axes is not None:
            along: Doubles = self._axes @ point[:-1]
            return along
        training = self._training
        shares = self._z[:, :-1] @ (point[:-1] / self._values[:, None])
        sums = training.x.T.astype(np.float64) @ shares - np.outer(training.mean, shares.sum(axis=0))
        found: Doubles = sums / training.scale[:, None]
        return found


@dataclass(frozen=True)
class Straight:
    """Features as they are; the design's principal axes precondition."""

    training: Training

    @cached_property
    def _scale(self) -> Doubles:
        return self.training.scale[:, None]

    @property
    def size(self) -> int:
        """Features."""
        return int(self.training.x.shape[1])

    @property
    def exact(self) -> bool:
        """Whether the design is in double precision."""
        return self.training.design.exact

    def logits(self, point: Doubles) -> Matrix:
        """Scores [rows, columns]; standardising is moved from the rows to the weights."""
        x, scaled = self.training.x, point[:-1] / self._scale
        found: Matrix = x @ scaled.astype(x.dtype)
        found += (point[-1] - self.training.mean @ scaled).astype(x.dtype)
        return found

    def gradient(self, residuals: Matrix) -> Doubles:
        """Derivative by the point."""
        x, sums = self.training.x, residuals.sum(axis=0, dtype=np.float64)
        gradient = np.empty((x.shape[1] + 1, residuals.shape[1]))
        gradient[:-1] = ((x.T @ residuals).astype(np.float64) - np.outer(self.training.mean, sums)) / self._scale
        gradient[-1] = sums
        return gradient

    def divide(self, gradient: Doubles, penalty: float, bend: Doubles) -> Doubles:
        """Divide along the axes; off them there are no rows, and only the penalty curves."""
        out = gradient / bend
        axes, curvatures = self.training.design.basis.directions, self.training.design.basis.curvatures
        inside = axes.T @ gradient[:-1].astype(axes.dtype)
        bent = axes @ (inside / (np.outer(curvatures, bend) + penalty).astype(axes.dtype))
        off = 0.0 if axes.shape[0] == axes.shape[1] else (gradient[:-1] - axes @ inside) / penalty
        out[:-1] = bent + off
        return out

    def size_of(self, gradient: Doubles) -> float:
        """The largest entry."""
        return float(np.abs(gradient).max(initial=0.0))

    def weights(self, point: Doubles) -> Doubles:
        """Weights of standardised features are what points hold."""
        return point[:-1]
