"""The head: logits of the rows that somebody needs, shown to consumers slice by slice over the vocabulary.

Nobody holds the logits of many rows at once: a consumer that must see whole rows (because somebody may change them, or
draws from them) gets them a few rows at a time.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ember.card import BoundModel
from ember.engine.backend import Backend
from ember.sampling import draw
from ember.work import Floats, Sampling, Score, TopTokens

HEAD_ROWS: Final = 1024
"""Rows that go through a slice together: bounds the scratch of a unit with many prompts."""
WHOLE_BYTES: Final = 32 << 20
"""Bytes of whole rows of logits that are held together."""

Rows = NDArray[np.int64]


class Consumer(Protocol):
    """Takes logits of its rows in ascending order of token ids; knows whether it must see whole rows."""

    def take(self, rows: Rows, start: int, scores: Floats) -> None:
        """Take logits [rows, n] of tokens start … start + n - 1; `rows` counts the consumer's own rows."""


class Chooser(Protocol):
    """A consumer that chooses the next token of every row."""

    ids: NDArray[np.int64]

    @property
    def broken(self) -> NDArray[np.bool_]:
        """[rows] whose logits allow no choice: not finite, or -inf throughout."""

    def take(self, rows: Rows, start: int, scores: Floats) -> None:
        """See `Consumer.take`."""


class Greedy:
    """The lowest id among equal maxima of each row."""

    def __init__(self, rows: int) -> None:
        self._best = np.full(rows, -np.inf, np.float32)
        self._wrong = np.zeros(rows, np.bool_)
        self.ids: NDArray[np.int64] = np.zeros(rows, np.int64)

    @property
    def broken(self) -> NDArray[np.bool_]:
        """See `Chooser.broken`."""
        broken: NDArray[np.bool_] = self._wrong | np.isneginf(self._best)
        return broken

    def take(self, rows: Rows, start: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        places = scores.argmax(axis=1)
        values = scores[np.arange(len(scores)), places]
        # the maximum of a row with a NaN is that NaN
        self._wrong[rows] |= np.isnan(values) | np.isposinf(values)
        better = values > self._best[rows]
        self._best[rows] = np.where(better, values, self._best[rows])
        self.ids[rows] = np.where(better, start + places, self.ids[rows])


class Drawn:
    """A token drawn for each row, from random numbers of that row's own; must see whole rows."""

    def __init__(self, sampling: Sampling, generators: Sequence[np.random.Generator]) -> None:
        self._sampling, self._generators = sampling, generators
        self.ids: NDArray[np.int64] = np.zeros(len(generators), np.int64)
        self._wrong = np.zeros(len(generators), np.bool_)

    @property
    def broken(self) -> NDArray[np.bool_]:
        """See `Chooser.broken`."""
        return self._wrong

    def take(self, rows: Rows, start: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        given, top = self._sampling, scores.max(axis=1)
        self._wrong[rows] = ~np.isfinite(top)
        for row, line, usable in zip(rows.tolist(), scores, np.isfinite(top).tolist(), strict=True):
            if usable:
                chance = self._generators[row].random()
                self.ids[row] = draw(line, given.temperature, given.top_k, given.top_p, chance)


class Likelihood:
    """Negative log-likelihood in nats of one target token a row, by a running log-sum-exp in float64."""

    def __init__(self, targets: NDArray[np.int32]) -> None:
        self._targets = targets
        self._chosen = np.zeros(len(targets), np.float64)
        self._top = np.full(len(targets), -np.inf, np.float64)
        self._sum = np.zeros(len(targets), np.float64)

    def take(self, rows: Rows, start: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        wide = scores.astype(np.float64)
        top = np.maximum(self._top[rows], wide.max(axis=1))
        self._sum[rows] = self._sum[rows] * np.exp(self._top[rows] - top) + np.exp(wide - top[:, None]).sum(axis=1)
        self._top[rows] = top
        targets = self._targets[rows]
        here = np.flatnonzero((targets >= start) & (targets < start + scores.shape[1]))
        self._chosen[rows[here]] = wide[here, targets[here] - start]

    def values(self) -> NDArray[np.float64]:
        """[rows] nats."""
        return self._top + np.log(self._sum) - self._chosen


class Ranked:
    """Log-probability and rank of one target token a row; must see whole rows."""

    def __init__(self, targets: NDArray[np.int64]) -> None:
        self._targets = targets
        self._values = np.zeros(len(targets), np.float64)
        self._ranks = np.zeros(len(targets), np.int64)

    def take(self, rows: Rows, start: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        targets = self._targets[rows]
        chosen = scores[np.arange(len(scores)), targets]
        self._values[rows] = log_probabilities(scores)[np.arange(len(scores)), targets]
        self._ranks[rows] = 1 + (scores > chosen[:, None]).sum(axis=1)

    def score(self, first: int, end: int) -> Score:
        """Rows first … end - 1 as the tokens of one continuation."""
        return Score(tuple(self._values[first:end].tolist()), tuple(self._ranks[first:end].tolist()))


class Top:
    """The k most likely tokens of each row; must see whole rows."""

    def __init__(self, rows: int, k: int) -> None:
        self._k = k
        self.tokens: list[TopTokens] = [TopTokens((), ())] * rows

    def take(self, rows: Rows, start: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        for row, line, values in zip(rows.tolist(), scores, log_probabilities(scores), strict=True):
            best = np.argsort(-line, kind="stable")[: self._k]  # equal ones stay in the order of their ids
            self.tokens[row] = TopTokens(tuple(best.tolist()), tuple(values[best].tolist()))


def log_probabilities(scores: Floats) -> NDArray[np.float64]:
    """Natural log-probabilities of logits [rows, V], in float64."""
    wide = scores.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide


class Scan:
    """One pass of hidden states h [T, D] after the final norm through the head."""

    def __init__(self, model: BoundModel, be: Backend, *, whole: bool) -> None:
        self._model, self._be, self._whole = model, be, whole
        self._consumers: list[tuple[Rows, Consumer]] = []

    def add(self, places: Rows, consumer: Consumer) -> None:
        """Show `consumer` the lines `places` of h, in that order. Consumers are served in the order they are added."""
        self._consumers.append((places, consumer))

    def run(self, h: Floats) -> None:
        """Show the logits of all lines to all consumers."""
        vocab = self._model.card.vocab_size
        step = min(HEAD_ROWS, max(1, WHOLE_BYTES // (4 * vocab))) if self._whole else HEAD_ROWS
        for first in range(0, len(h), step):
            lines = slice(first, min(len(h), first + step))
            if self._whole:
                rows = np.empty((lines.stop - lines.start, vocab), h.dtype)
                for start, scores in self._slices(h[lines]):
                    rows[:, start : start + scores.shape[1]] = scores
                self._serve(lines, 0, rows)
            else:
                for start, scores in self._slices(h[lines]):
                    self._serve(lines, start, scores)

    def _slices(self, h: Floats) -> Iterator[tuple[int, Floats]]:
        family, config = self._model.family, self._model.config
        for start, _, scores in self._be.head_slices(h, self._model.weights.output):
            yield start, family.logits(self._be, config, scores)

    def _serve(self, lines: slice, start: int, scores: Floats) -> None:
        for places, consumer in self._consumers:
            mine = np.flatnonzero((places >= lines.start) & (places < lines.stop))
            if len(mine):
                everything = len(mine) == len(scores) and np.array_equal(places[mine], range(lines.start, lines.stop))
                consumer.take(mine, start, scores if everything else scores[places[mine] - lines.start])
