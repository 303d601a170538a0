"""How many threads BLAS takes: one setting of the whole process, which models must not take from each other."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import threadpoolctl


class BlasThreads:
    """Holds BLAS to a number of threads while somebody evaluates; the last to leave restores what was before.

    Who wants another number waits until nobody else evaluates, or would compute with threads that its record does not
    tell. An evaluation within one of the same thread, as of a hook that asks another model, has its number meanwhile.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: set[int] = set()
        self._threads = 0
        self._limiter: Any = None

    @contextmanager
    def held(self, controller: threadpoolctl.ThreadpoolController, threads: int) -> Iterator[None]:
        """Let BLAS take `threads` threads."""
        me = threading.get_ident()
        if me in self._inside:
            with _taking_control(controller).limit(limits=threads, user_api="blas"):
                yield
            return
        self._enter(me, controller, threads)
        try:
            yield
        finally:
            self._leave(me, controller)

    def _enter(self, me: int, controller: threadpoolctl.ThreadpoolController, threads: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._inside or self._threads == threads)
            limiter = _taking_control(controller).limit(limits=threads, user_api="blas")
            if not self._inside:
                self._limiter, self._threads = limiter, threads
            self._inside.add(me)

    def _leave(self, me: int, controller: threadpoolctl.ThreadpoolController) -> None:
        with self._changed:
            self._inside.discard(me)
            if not self._inside:
                _taking_control(controller)
                self._limiter.restore_original_limits()
                _taking_control(controller)  # and leave it to whoever sets them next
                self._changed.notify_all()

    def forked(self) -> None:
        """Forget the threads that a process which was forked does not have."""
        self._changed = threading.Condition()
        self._inside &= {threading.get_ident()}


def _taking_control(controller: threadpoolctl.ThreadpoolController) -> threadpoolctl.ThreadpoolController:
    """Let this thread set BLAS threads: threadpoolctl 3.8 lets the first thread that did, and ignores all others."""
    for library in controller.lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)
    return controller


BLAS_THREADS = BlasThreads()
os.register_at_fork(after_in_child=BLAS_THREADS.forked)
