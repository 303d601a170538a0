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
from pipelines import shards

VARIABLE = "EMBER_TEST_FAULT"


@dataclass(frozen=True)
class Fault:
    """What happens when a unit holds a prompt with `mark` in its text."""

    act: str
    """`kill`, `bus`, `exit`, `raise`, `allocate`, `stop` or `sleep`."""
    mark: str = ""
    """Every unit if empty; while a unit is written, the id of a stimulus."""
    times: int = 1_000_000
    """How often it happens at most, in all processes together."""
    size: float = 0
    """Bytes to allocate, or seconds to sleep."""
    tally: str = ""
    """Directory in which each time leaves a file."""
    writing: bool = False
    """It happens when a unit's activations are written, after `pause` seconds, not when it is computed."""
    pause: float = 0

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
        if (
            fault
            and not fault.writing
            and any(fault.mark in self._model.tokenizer.decode(prompt) for prompt in work.prompts)
        ):
            go_wrong(fault)
        return self._model.run_unit(work, *more, **named)


HOARD: list[Any] = []


def go_wrong(fault: Fault) -> None:
    """Let the fault have its way, unless it has had it often enough."""
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
        HOARD[:] = [np.ones(int(fault.size), np.uint8)]
        time.sleep(2)
    if fault.act == "sleep":
        time.sleep(fault.size)
    signals = {"kill": signal.SIGKILL, "bus": signal.SIGBUS, "stop": signal.SIGSTOP}
    if fault.act in signals:
        os.kill(os.getpid(), signals[fault.act])


def disturb_writing(fault: Fault) -> None:
    """Let the fault happen in this process whenever the activations of a unit with the marked stimulus are written."""
    write = shards.write_activations

    def disturbed(run_dir: Path, unit: str, attempt: str, captures: Any, **named: Any) -> Any:
        if not fault.mark or any(fault.mark in capture.stimulus_id for capture in captures):
            time.sleep(fault.pause)
            go_wrong(fault)
        return write(run_dir, unit, attempt, captures, **named)

    shards.write_activations = disturbed


def open_faulty(path: str, **options: Any) -> FaultyModel:
    """Open a model with the fault that the environment orders."""
    orders = os.environ.get(VARIABLE)
    fault = Fault(**json.loads(orders)) if orders else None
    if fault and fault.writing and shards.write_activations.__module__ == shards.__name__:
        disturb_writing(fault)
    return FaultyModel(ember.open(path, **options), fault)
