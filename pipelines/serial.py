"""The serial executor: tasks run one by one in this process, for debugging and as the reference.

A task that kills its process kills the run; nothing is watched. Results on disk are those of any other executor.
"""

from collections import deque
from types import TracebackType
from typing import Self

from pipelines import worker
from pipelines.executor import Outcome
from pipelines.tasks import UnitTask


class SerialExecutor:
    """Runs a task when its outcome is asked for."""

    workers = 1

    def __init__(self) -> None:
        self._queue: deque[UnitTask] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def free(self) -> bool:
        """Whether nothing waits."""
        return not self._queue

    def submit(self, task: UnitTask, avoid: str) -> None:
        """Keep a task until `wait`; there is only this host."""
        self._queue.append(task)

    def wait(self) -> Outcome:
        """Run the oldest task."""
        task = self._queue.popleft()
        return Outcome(task, worker.run_unit(task))

    def close(self) -> None:
        """Forget tasks that have not run."""
        self._queue.clear()
