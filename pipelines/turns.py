"""Whose turn it is in a process: one unit is computed at a time, and at most one more is being written meanwhile.

A model has one set of scratch, and the threads of its matrix products are set for the process: units take turns. A unit
that is computed hands its turn on before it is written, so that the next one need not wait for the disk; but only once
the unit before it is written, so that results never pile up.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_COMPUTING = threading.Lock()
_WRITING = threading.Lock()


class Turn:
    """The turn of one unit, from before it is computed to after it is written; a context.

    `step_aside` is called when the unit is computed: it lets the process begin another one. Without it the unit is by
    itself in this process, from its beginning to its end.
    """

    def __init__(self, step_aside: Callable[[], None] | None) -> None:
        self._step_aside = step_aside
        self._held = _COMPUTING

    def __enter__(self) -> Self:
        _COMPUTING.acquire()
        if self._step_aside is None:
            with _WRITING:  # by now the unit before this one is written, and none can begin
                pass
        return self

    def hand_on(self, before: Callable[[], None]) -> None:
        """Let another unit be computed, as soon as the unit before this one is written; first call `before`."""
        if self._step_aside is None:
            return
        _WRITING.acquire()
        try:
            before()
        except BaseException:
            _WRITING.release()
            raise
        self._held = _WRITING
        _COMPUTING.release()
        self._step_aside()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.release()
