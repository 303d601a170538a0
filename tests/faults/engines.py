"""Engines that go wrong on purpose: `ember.open` with a fault that a prompt's text sets off.

A process takes its orders from the environment variable EMBER_TEST_FAULT, JSON of a `Fault`, so that workers have
them too.
"""

import json
import os
import signal
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ember
from ember.work import UnitResult, UnitWork

VARIABLE = "EMBER_TEST_FAULT"


@dataclass(frozen=True)
class Fault:
    """What happens when a unit holds a prompt with `mark` in its text."""

    act: str
    """`kill`, `bus`, `exit`, `raise`, `allocate`, `stop` or `sleep`."""
    mark: str = ""
    """Every unit if empty."""
    times: int = 1_000_000
    """How often it happens at most, in all processes together."""
    size: float = 0
    """Bytes to allocate, or seconds to sleep."""
    tally: str = ""
    """Directory in which each time leaves a file."""

    @property
    def environment(self) -> dict[str, str]:
        """What the processes that shall go wrong need."""
        return {VARIABLE: json.dumps(asdict(self))}


class FaultyModel:
    """A model with a fault; everything else is the model's own."""

    def __init__(self, model: ember.Model, fault: Fault | None) -> None:
        self._model, self._fault = model, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def run_unit(self, work: UnitWork, *more: Any, **named: Any) -> UnitResult:
        """Run a unit, unless the fault has its way."""
        fault = self._fault
        if fault and any(fault.mark in self._model.tokenizer.decode(prompt) for prompt in work.prompts):
            self._go_wrong(fault)
        return self._model.run_unit(work, *more, **named)

    def _go_wrong(self, fault: Fault) -> None:
        if fault.tally:
            tally = Path(fault.tally)
            if len(list(tally.iterdir())) >= fault.times:
                return
            (tally / uuid.uuid4().hex).touch()
        if fault.act == "raise":
            raise ValueError("as ordered")
        if fault.act == "exit":
            os._exit(7)
        if fault.act == "allocate":
            self.hoard = np.ones(int(fault.size), np.uint8)
            time.sleep(2)
        if fault.act == "sleep":
            time.sleep(fault.size)
        signals = {"kill": signal.SIGKILL, "bus": signal.SIGBUS, "stop": signal.SIGSTOP}
        if fault.act in signals:
            os.kill(os.getpid(), signals[fault.act])


def open_faulty(path: str, **options: Any) -> FaultyModel:
    """Open a model with the fault that the environment orders."""
    orders = os.environ.get(VARIABLE)
    return FaultyModel(ember.open(path, **options), Fault(**json.loads(orders)) if orders else None)
