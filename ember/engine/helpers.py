"""Threads beside the calling one: they begin when first asked for, and anew in a process that was forked."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from weakref import WeakSet


class Helpers:
    """Up to `count` threads; `forked` is called in a process that was forked, where none of them exists any more."""

    def __init__(self, count: int, name: str, forked: Callable[[], None] = lambda: None) -> None:
        self._count, self._name, self._forked = count, name, forked
        self._threads = ThreadPoolExecutor(count, name)
        _ALL.add(self)

    def begin(self, work: Callable[..., Any], *given: Any) -> "Future[Any] | None":
        """Let a helper do work(*given); None where no thread can be had, as while the interpreter ends."""
        try:
            return self._threads.submit(work, *given)
        except RuntimeError:
            return None

    def renew(self) -> None:
        """Forget threads that this process does not have."""
        self._threads = ThreadPoolExecutor(self._count, self._name)
        self._forked()


_ALL: WeakSet[Helpers] = WeakSet()


def _renew_all() -> None:
    for helpers in list(_ALL):
        helpers.renew()


os.register_at_fork(after_in_child=_renew_all)
