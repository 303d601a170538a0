"""Who chooses the next tokens of a unit's prompts, and when a continuation ends."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ember.engine.head import Chooser, Drawn, Greedy
from ember.sampling import generator
from ember.work import Produced, UnitWork

Listener = Callable[[int, int, list[int]], bool]
"""Told (prompt, new token, all new tokens so far); returns True to end that prompt."""


class Choosing:
    """How tokens are chosen: greedily, or drawn with random numbers that belong to each prompt."""

    def __init__(self, work: UnitWork) -> None:
        self._sampling = work.sampling
        self._generators = [generator(work.sampling.seed, key) for key in work.sampling.keys] if work.sampling else []

    @property
    def needs_whole_rows(self) -> bool:
        """Whether a choice needs all logits of a row at once."""
        return self._sampling is not None

    def chooser(self, sequences: NDArray[np.int64]) -> Chooser:
        """Return a consumer that chooses once for each of `sequences`."""
        if self._sampling is None:
            return Greedy(len(sequences))
        return Drawn(self._sampling, [self._generators[s] for s in sequences.tolist()])


@dataclass(slots=True)
class Growing:
    """A continuation while it grows."""

    token_ids: list[int] = field(default_factory=list)
    stopped: str = ""


class Continuations:
    """The continuations of a unit's prompts: takes chosen tokens, says which prompts go on."""

    def __init__(self, work: UnitWork, listener: Listener | None) -> None:
        self._work, self._listener = work, listener
        self._all = [Growing() for _ in work.prompts]

    def take(self, sequence: int, token: int) -> bool:
        """Append a token; returns whether the sequence goes on."""
        growing = self._all[sequence]
        growing.token_ids.append(token)
        ended = self._listener is not None and self._listener(sequence, token, growing.token_ids)
        if token in self._work.stop_ids:
            growing.stopped = "stop"
        elif ended:
            growing.stopped = "text"
        elif len(growing.token_ids) == self._work.max_tokens:
            growing.stopped = "length"
        return not growing.stopped

    def count(self, sequence: int) -> int:
        """Tokens of a sequence so far."""
        return len(self._all[sequence].token_ids)

    def produced(self) -> list[Produced]:
        """All continuations as they stand."""
        return [Produced(tuple(one.token_ids), one.stopped) for one in self._all]
