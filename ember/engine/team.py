"""Work on rows shared among threads: each takes a range, and no bit depends on where ranges end."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any, Final

from ember.engine.helpers import Helpers

ALONE: Final = 200_000
"""Nanoseconds of work that one thread does by itself: waking another would cost too much of it."""

PER_NANOSECOND: Final = 40
"""Multiplications that a thread does in a nanosecond, roughly."""

Part = Callable[[int, int], None]


class Team:
    """The calling thread and, where there are several, its helpers; kernels release the GIL."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._helpers = Helpers(threads - 1, "ember") if threads > 1 else None

    def works_alone(self, nanoseconds: float) -> bool:
        """Whether about so much work is left to the calling thread."""
        return self._helpers is None or nanoseconds < ALONE

    def share(self, n: int, nanoseconds: float, part: Part, unit: int = 4) -> None:
        """Do part(start, stop) for all of 0 … n - 1, about so much work; ranges begin at multiples of `unit`.

        Whatever is raised, no helper is at work any more when this returns: parts write into memory that others get.
        """
        if self._helpers is None or self.works_alone(nanoseconds):
            part(0, n)
            return
        each = -(-n // (unit * self.threads)) * unit
        ranges = [(start, min(n, start + each)) for start in range(0, n, each)]
        own, others = ranges[:1], []
        try:
            for one in ranges[1:]:
                begun = self._helpers.begin(part, *one)
                if begun is None:
                    own.append(one)
                else:
                    others.append(begun)
            for start, stop in own:
                part(start, stop)
        finally:
            _settle(others)
        for other in others:
            other.result()


def _settle(others: Sequence[Future[Any]]) -> None:
    """Wait until all have ended, through whatever interrupts; raises the last interrupt afterwards."""
    interrupt: BaseException | None = None
    while True:
        try:
            wait(others)
            break
        except BaseException as raised:  # Ctrl-C, or a signal handler of the user's
            interrupt = raised
    if interrupt is not None:
        raise interrupt
