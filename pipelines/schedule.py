"""Which piece runs next, and what becomes of one that failed: decisions only, no processes and no files.

The rule: a whole unit that fails is tried once more, elsewhere. Failing twice it is split into halves; a half gets
one try, then is split in turn; a single prompt gets two tries and is then isolated. So one prompt that kills its
worker in a unit of n prompts costs at most 4 + log2(n) workers, all other prompts are done, and a single unlucky
death changes nothing.

A worker computes one unit while it writes another. When it dies, the one that was computed is to blame; the other is
done again. Whatever is done again is `alone` in its worker, so that no innocent is ever blamed twice.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pipelines.pieces import Piece


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a piece."""

    piece: Piece
    number: int
    """From 0; also counts tries that a worker died of without having started the piece."""
    avoid: str = ""
    """Host where the last try failed; empty when none did."""
    alone: bool = False
    """Its worker is to do nothing else meanwhile."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a try failed."""

    kind: str
    """`signal`, `memory`, `time-out`, `exit`, `exception` or `unknown`."""
    detail: str
    host: str = ""
    deaths: int = 1
    """Workers that it took: a scheduler of somebody else may have handed the piece on by itself."""


@dataclass(frozen=True, slots=True)
class Isolated:
    """A prompt that stands alone with its cause, after all tries."""

    piece: Piece
    cause: Cause
    tries: int


class Schedule:
    """The open pieces of a run. Pieces of the gate unit (the first) are handed out before any other."""

    def __init__(self, pieces: Iterable[Piece], *, gate_unit: int | None = None) -> None:
        ordered = sorted(pieces)
        self._gate = deque(Attempt(p, 0) for p in ordered if p.unit == gate_unit)
        self._queue = deque(Attempt(p, 0) for p in ordered if p.unit != gate_unit)
        self._gate_unit = gate_unit
        self._running: dict[str, Attempt] = {}
        self._tries: dict[str, int] = {}
        self.isolated: list[Isolated] = []

    @property
    def unfinished(self) -> int:
        """Pieces queued or running."""
        return len(self._gate) + len(self._queue) + len(self._running)

    @property
    def gate_open(self) -> bool:
        """Whether all pieces of the gate unit are through."""
        return not self._gate and all(a.piece.unit != self._gate_unit for a in self._running.values())

    def take(self) -> Attempt | None:
        """Return the next try to start; None where nothing is left to start."""
        source = self._gate or self._queue
        if not source:
            return None
        attempt = source.popleft()
        self._running[attempt.piece.name] = attempt
        return attempt

    def running(self, name: str) -> Piece:
        """Return the running piece called `name`."""
        return self._running[name].piece

    def done(self, piece: Piece) -> None:
        """Note that a piece has its receipt."""
        del self._running[piece.name]

    def put_back(self, piece: Piece, *, alone: bool = False) -> Literal["retry"]:
        """Return a piece whose worker died before it had started, or of another one: that counts as no try."""
        attempt = self._running.pop(piece.name)
        again = Attempt(piece, attempt.number + 1, attempt.avoid, attempt.alone or alone)
        self._source(piece).appendleft(again)
        return "retry"

    def failed(self, piece: Piece, cause: Cause) -> Literal["retry", "split", "isolated"]:
        """Apply the rule to a piece whose try failed of `cause`, and say which part of it applied."""
        attempt = self._running.pop(piece.name)
        tries = self._tries[piece.name] = self._tries.get(piece.name, 0) + cause.deaths
        patience = 2 if piece.size == 1 or not piece.path else 1
        if tries < patience:
            self._source(piece).append(Attempt(piece, attempt.number + 1, cause.host, alone=True))
            return "retry"
        if piece.size == 1:
            self.isolated.append(Isolated(piece, cause, tries))
            return "isolated"
        self._source(piece).extend(Attempt(half, 0, cause.host, alone=True) for half in piece.halves())
        return "split"

    def _source(self, piece: Piece) -> deque[Attempt]:
        return self._gate if piece.unit == self._gate_unit else self._queue
