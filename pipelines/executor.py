"""What runs tasks: in this process, or on a cluster. Both give the same values."""

from dataclasses import dataclass
from typing import Protocol

from pipelines.schedule import Cause
from pipelines.tasks import UnitRecord, UnitTask


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a submitted task: a record, or the death of its worker."""

    task: UnitTask
    record: UnitRecord | None
    cause: Cause | None = None
    """How the worker ended; None with a record, and for a task that its worker had not begun."""
    beside: bool = False
    """The task was being written while its worker died of another unit, as far as can be told; it has no cause."""


class Executor(Protocol):
    """Takes tasks and gives outcomes, in any order."""

    workers: int
    """Worker processes."""

    @property
    def free(self) -> bool:
        """Whether another task may be submitted now."""

    def submit(self, task: UnitTask, avoid: str) -> None:
        """Take a task; `avoid` names a host that it should not run on if there is another one."""

    def wait(self) -> Outcome:
        """Block until a submitted task has an outcome."""

    def close(self) -> None:
        """Give up what runs and free everything."""
