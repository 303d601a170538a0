"""Work on rows shared among threads: each takes a range, and no bit depends on where ranges end."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

ALONE: Final = 200_000
"""Nanoseconds of work that one thread does by itself: waking another would cost too much of it."""

PER_NANOSECOND: Final = 40
"""Multiplications that a thread does in a nanosecond, roughly."""

Part = Callable[[int, int], None]


class Team:
    """The calling thread and, where there are several, its helpers; kernels release the GIL."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._helpers = ThreadPoolExecutor(threads - 1, "ember") if threads > 1 else None

    def works_alone(self, nanoseconds: float) -> bool:
        """Whether about so much work is left to the calling thread."""
        return self._helpers is None or nanoseconds < ALONE

    def share(self, n: int, nanoseconds: float, part: Part, unit: int = 4) -> None:
        """Do part(start, stop) for all of 0 … n - 1, about so much work; ranges begin at multiples of `unit`."""
        if self._helpers is None or self.works_alone(nanoseconds):
            part(0, n)
            return
        each = -(-n // (unit * self.threads)) * unit
        others = [self._helpers.submit(part, start, min(n, start + each)) for start in range(each, n, each)]
        part(0, min(n, each))
        wait(others)
        for other in others:
            other.result()
