"""Progress on stderr: a bar on a terminal, plain lines elsewhere. Text of users never goes through markup."""

import sys
import time
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from pipelines.drive import Step

LINE_EVERY: Final = 10.0
"""Seconds between plain lines, so that a log of a long run stays short."""


class Reporter(Protocol):
    """Takes what happens in a run."""

    def say(self, line: str) -> None:
        """Show a line."""

    def begin(self, units: int, done: int, rows: int) -> None:
        """Open pieces are about to run: `done` of `units` are through already, `rows` token rows are to come."""

    def step(self, step: Step) -> None:
        """Show that something happened."""

    def end(self) -> None:
        """Stop showing progress."""


class Silent:
    """Shows nothing: for use from Python and for machines."""

    def say(self, line: str) -> None:
        """Show nothing."""

    def begin(self, units: int, done: int, rows: int) -> None:
        """Show nothing."""

    def step(self, step: Step) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Show nothing."""


class Meter:
    """Counts rows against the clock."""

    def __init__(self, units: int, done: int, rows: int) -> None:
        self.units, self.done = units, done
        self._to_do, self._rows, self._tokens = rows, 0, 0
        self._started = time.monotonic()

    def add(self, step: Step) -> None:
        """Count a step; a split makes one piece more."""
        if step.receipt is not None:
            self.done += 1
            self._rows += step.receipt.rows
            self._tokens += step.receipt.rows + step.receipt.generated
        elif step.event == "isolated":
            self.done += 1
        elif step.event == "split":
            self.units += 1

    @property
    def speed(self) -> float:
        """Tokens per second so far."""
        return self._tokens / self._seconds

    @property
    def eta(self) -> float | None:
        """Seconds to come, judged by the prompts' rows; None before the first ones are through."""
        return max(0, self._to_do - self._rows) * self._seconds / self._rows if self._rows else None

    @property
    def _seconds(self) -> float:
        return max(1e-6, time.monotonic() - self._started)

    def __str__(self) -> str:
        """Speed and time to come."""
        left = f", {clock(self.eta)} left" if self.eta is not None and self.done < self.units else ""
        return f"{self.speed:,.0f} tok/s{left}"


class Lines:
    """Plain lines on stderr, at most one in ten seconds but for trouble."""

    def __init__(self) -> None:
        self._meter = Meter(0, 0, 0)
        self._shown = 0.0

    def say(self, line: str) -> None:
        """Show a line."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def begin(self, units: int, done: int, rows: int) -> None:
        """Start counting."""
        self._meter, self._shown = Meter(units, done, rows), time.monotonic()

    def step(self, step: Step) -> None:
        """Show a line now and then; trouble at once."""
        self._meter.add(step)
        if step.receipt is None:
            self.say(trouble(step))
        elif time.monotonic() - self._shown >= LINE_EVERY:
            self._shown = time.monotonic()
            self.say(f"{self._meter.done} of {self._meter.units} units, {self._meter}")

    def end(self) -> None:
        """Nothing is left on the screen."""


class Bar:
    """A progress bar on a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("units"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[told]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._meter = Meter(0, 0, 0)
        self._task = self._bar.add_task("units", told="", total=None, visible=False)

    def say(self, line: str) -> None:
        """Show a line above the bar."""
        self._console.print(Text(line), soft_wrap=True)

    def begin(self, units: int, done: int, rows: int) -> None:
        """Show the bar."""
        self._meter = Meter(units, done, rows)
        self._bar.start()
        self._bar.update(self._task, total=units, completed=done, visible=True)

    def step(self, step: Step) -> None:
        """Move the bar."""
        self._meter.add(step)
        if step.receipt is None:
            self.say(trouble(step))
        self._bar.update(self._task, total=self._meter.units, completed=self._meter.done, told=str(self._meter))

    def end(self) -> None:
        """Take the bar away."""
        self._bar.stop()


class Shown:
    """A reporter whose bar is gone at the end of a `with`, whatever ends it."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reporter.end()


def make_reporter() -> Reporter:
    """Return a bar if stderr is a terminal, plain lines otherwise."""
    return Bar() if sys.stderr.isatty() else Lines()


def trouble(step: Step) -> str:
    """Say in a line what happened to a piece that failed."""
    what = {
        "retry": "failed and is tried again",
        "split": "failed and is split into halves",
        "isolated": "failed again and is set aside",
    }[step.event]
    return f"unit {step.piece} {what}: {step.detail}"


def clock(seconds: float) -> str:
    """Write seconds as 7 s, 3 min 20 s or 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
