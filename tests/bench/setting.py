"""What all rows of the benchmark share: files, interpreters, how often; and what a row gives back."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.rounds import Timing


@dataclass(frozen=True, slots=True)
class Setting:
    """The machine's part and the user's choices."""

    model: Path
    reference: str | None
    """A Python with llama.cpp, torch and transformers; None: peers are left out."""
    rounds: int = 5
    threads: int = 2
    prompts: int = 200
    steps: int = 32
    """Tokens that are generated after each prompt."""
    big: Path | None = None
    """The shape of a 1B model in Q8_0; None: it is made."""
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Prompts of the runs that show growth."""
    crowd: int = 1200
    """Prompts of the runs with one worker and with more."""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ember-bench-")))
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings of peers that were found to be the best, by label: searched for once."""

    def big_model(self) -> Path:
        """Return the big model, made on the first use."""
        if self.big is not None:
            return self.big
        made = self.folder / "big-q8_0.gguf"
        if not made.exists():
            from tests.foundry.requantise import big_llama

            big_llama(made)
        return made


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast, or which share: with what issue 5 asks for."""

    what: str
    measured: float
    wanted: float | None = None
    cpu: float | None = None
    """The same by processor time, where threads do not wait for each other in a loop."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: lines by contender, and what they say together."""

    name: str
    title: str
    lines: Mapping[str, Mapping[str, Any]]
    ratios: Sequence[Ratio] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def as_line(timing: Timing, work: float, unit: str = "tokens", *, flops: float | None = None) -> dict[str, Any]:
    """Make the record of a contender that did so much `work` in each round."""
    line = {
        "seconds": timing.seconds,
        "median_seconds": timing.median,
        "cpu_seconds": timing.cpu_seconds,
        "median_cpu_seconds": timing.median_cpu,
        "work": work,
        "unit": unit,
        "per_second": work / timing.median,
        "about": timing.about,
    }
    return line if flops is None else line | {"gflops_per_second": flops / timing.median / 1e9}


def ratio(
    what: str,
    fast: Mapping[str, Any],
    slow: Mapping[str, Any],
    wanted: float | None = None,
    *,
    cpu: bool = True,
) -> Ratio:
    """How many times as fast one line is as another, by work done a second."""
    by_cpu = (fast["work"] / fast["median_cpu_seconds"]) / (slow["work"] / slow["median_cpu_seconds"]) if cpu else None
    return Ratio(what, fast["per_second"] / slow["per_second"], wanted, by_cpu)


def load() -> float:
    """Processes that wanted to run in the last minute."""
    return round(os.getloadavg()[0], 1)
