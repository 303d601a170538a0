"""The client's loop: hand out tries, take outcomes, apply the rule, until every piece has a receipt."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines import guard, journal, receipts
from pipelines.errors import RunError
from pipelines.executor import Executor, Outcome
from pipelines.plan import Plan
from pipelines.receipts import Failure, Receipt
from pipelines.resume import check_still_there
from pipelines.schedule import Attempt, Cause, Isolated, Schedule
from pipelines.tasks import UnitRecord, UnitTask

GATE: Final = 0
"""The unit that the smoke guard is measured on: it is handed out first, and nobody waits for it."""
PATIENCE: Final = 10
"""Failed tries in a row, before anything has ever succeeded, after which the run itself is at fault."""

NOT_BEGUN: Final = "the worker ended before it had begun this"
BESIDE: Final = "the worker ended while it computed another unit and only wrote this one"

MakeTask = Callable[[Attempt], UnitTask]


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a watcher of the run may want to show."""

    event: str
    """`done`, `found`, `retry`, `split` or `isolated`."""
    piece: str
    receipt: Receipt | None = None
    detail: str = ""
    seconds: float = 0.0


class Drive:
    """Drives one session.

    `finished` holds the receipts of all pieces that are through, `computed` counts those that came in this session,
    `seconds` is how long it has run units.
    """

    def __init__(
        self, run_dir: Path, plan: Plan, finished: Iterable[Receipt], schedule: Schedule, show: Callable[[Step], None]
    ) -> None:
        self.finished = list(finished)
        self.computed = 0
        self.seconds = 0.0
        self._run_dir, self._plan, self._schedule, self._show = run_dir, plan, schedule, show
        self._isolated = 0
        self._in_a_row = 0
        self._guarded = False

    def run(self, executor: Executor, make_task: MakeTask) -> None:
        """Run all open pieces. Raises RunError, GGUFError or GuardError for what stops the whole run."""
        began = time.monotonic()
        try:
            self._run(executor, make_task)
        finally:
            self.seconds = time.monotonic() - began

    def _run(self, executor: Executor, make_task: MakeTask) -> None:
        self.check_guard()
        while self._schedule.unfinished:
            while executor.free and (attempt := self._schedule.take()):
                task = make_task(attempt)
                journal.note(self._run_dir, "dispatched", piece=task.piece, number=task.number)
                executor.submit(task, attempt.avoid)
            outcome = executor.wait()
            check_still_there(self._run_dir)
            self._settle(outcome)
            self.check_guard()

    def _settle(self, outcome: Outcome) -> None:
        record = outcome.record
        if record is not None and record.receipt is not None:
            self._schedule.done(self._schedule.running(outcome.task.piece))
            self._note_done(record, record.receipt)
            return
        self._plan.source.file.check_unchanged()
        if record is None:
            self._fail(outcome.task, outcome.cause, beside=outcome.beside)
        elif record.fatal:
            raise RunError(record.error)
        else:
            self._fail(outcome.task, Cause(record.kind, record.error, record.host))

    def _note_done(self, record: UnitRecord, receipt: Receipt) -> None:
        self._in_a_row = 0
        self.computed += 1
        self.finished.append(receipt)
        event = "done" if record.computed else "found"
        journal.note(self._run_dir, event, piece=record.piece, seconds=round(record.seconds, 3), worker=record.pid)
        self._show(Step(event, record.piece, receipt, seconds=record.seconds))

    def _fail(self, task: UnitTask, cause: Cause | None, *, beside: bool = False) -> None:
        """Apply the rule to a failed try; without a cause its worker ended of another one, or before it had begun."""
        piece = self._schedule.running(task.piece)
        event = self._schedule.failed(piece, cause) if cause else self._schedule.put_back(piece, alone=beside)
        told = cause.detail if cause else BESIDE if beside else NOT_BEGUN
        journal.note(self._run_dir, event, piece=task.piece, kind=cause.kind if cause else "", cause=told)
        self._check_patience(cause.kind if cause else "", told)
        if cause:
            self._show(Step(event, task.piece, detail=told))
        for isolated in self._schedule.isolated[self._isolated :]:
            self._isolated += 1
            self.finished.append(self._commit(isolated, task))

    def _check_patience(self, kind: str, told: str) -> None:
        self._in_a_row += 1
        if self._in_a_row >= PATIENCE and not any(receipt.parts for receipt in self.finished):
            advice = "lower engine.unit_rows or raise run.memory_per_worker" if kind == "memory" else "try --serial"
            raise RunError(
                f"{self._in_a_row} tries in a row failed before anything was finished; the last: {told}. "
                f"That is hardly the prompts' fault: {advice}"
            )

    def _commit(self, isolated: Isolated, task: UnitTask) -> Receipt:
        piece, cause = isolated.piece, isolated.cause
        tokens = len(self._plan.samples[piece.start].tokens)
        failure = Failure(piece.start, cause.kind, cause.detail, isolated.tries)
        receipt = Receipt(piece.name, piece.start, piece.end, (), tokens, 0, failures=(failure,), ember=task.ember)
        return receipts.commit(self._run_dir, f"isolated-{piece.name}", receipt)

    def check_guard(self) -> None:
        """Once the first unit is through, raise GuardError if its predictions are no better than chance."""
        if not self._guarded and self._schedule.gate_open:
            self._guarded = True
            found = guard.measure(self.finished, self._plan.source.card.vocab_size)
            # states that were changed on purpose may well predict nothing
            allowed = self._plan.config.guard.allow_chance or self._plan.changes_first_unit
            guard.check(found, allow_chance=allowed)
