"""The head, slice by slice over the vocabulary: nobody holds the logits of many rows at once."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ember.card import BoundModel
from ember.engine.backend import Backend
from ember.engine.sinks import Sink
from ember.work import Floats

HEAD_ROWS = 1024
"""Rows that go through a slice together: bounds the scratch of a unit with many prompts."""


class Consumer(Protocol):
    """Takes slices of logits in ascending order of token ids."""

    def take(self, rows: slice, start: int, stop: int, scores: Floats) -> None:
        """Take logits [rows, stop - start] of tokens start … stop - 1."""


class Greedy:
    """The lowest id among equal maxima of each row; knows which rows are not finite."""

    def __init__(self, rows: int) -> None:
        self._best = np.full(rows, -np.inf, np.float32)
        self.ids: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.broken: NDArray[np.bool_] = np.zeros(rows, np.bool_)

    def take(self, rows: slice, start: int, stop: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        self.broken[rows] |= ~np.isfinite(scores.sum(axis=1, dtype=np.float64))
        places = scores.argmax(axis=1)
        values = scores[np.arange(len(scores)), places]
        better = values > self._best[rows]
        self._best[rows] = np.where(better, values, self._best[rows])
        self.ids[rows] = np.where(better, start + places, self.ids[rows])


class Likelihood:
    """Negative log-likelihood in nats of one target token a row, by a running log-sum-exp in float64."""

    def __init__(self, targets: NDArray[np.int32]) -> None:
        self._targets = targets
        self._chosen = np.zeros(len(targets), np.float64)
        self._top = np.full(len(targets), -np.inf, np.float64)
        self._sum = np.zeros(len(targets), np.float64)

    def take(self, rows: slice, start: int, stop: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        wide = scores.astype(np.float64)
        top = np.maximum(self._top[rows], wide.max(axis=1))
        self._sum[rows] = self._sum[rows] * np.exp(self._top[rows] - top) + np.exp(wide - top[:, None]).sum(axis=1)
        self._top[rows] = top
        targets = self._targets[rows]
        here = (targets >= start) & (targets < stop)
        self._chosen[rows][here] = wide[here, targets[here] - start]

    def values(self) -> NDArray[np.float64]:
        """[rows] nats."""
        return self._top + np.log(self._sum) - self._chosen


class LogitsSink:
    """Feeds the logits of a capture."""

    def __init__(self, sink: Sink, where: NDArray[np.int32]) -> None:
        self._sink = sink
        self._where = where

    def take(self, rows: slice, start: int, stop: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        inside = (self._where >= rows.start) & (self._where < rows.stop)
        self._sink.put(-1, scores, np.where(inside, self._where - rows.start, -1), slice(start, stop))


def scan(model: BoundModel, be: Backend, h: Floats, consumers: Sequence[Consumer]) -> None:
    """Run hidden states after the final norm, h [T, D], through the head and show the logits to every consumer."""
    family, config = model.family, model.config
    for first in range(0, len(h), HEAD_ROWS):
        rows = slice(first, min(len(h), first + HEAD_ROWS))
        for start, stop, scores in be.head_slices(h[rows], model.weights.output):
            final = family.logits(be, config, scores)
            for consumer in consumers:
                consumer.take(rows, start, stop, final)
