"""Contenders as subprocesses, asked in turn, round after round, so that a busy minute of the machine hits all alike."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.worker import UNSET

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Contender:
    """One line of the table: the same request for `parts` processes at once, each with a share of the prompts."""

    label: str
    python: str
    request: Mapping[str, Any]
    parts: int = 1


@dataclass(slots=True)
class Timing:
    """What a contender is, and how long each of its rounds took."""

    about: dict[str, Any]
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Of all threads. Those that wait for each other in a loop count too, so compare this with one thread only."""

    private_bytes: int | None = None
    """Memory that the largest of its processes has to itself after a round; None: it does not say."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def median_cpu(self) -> float:
        return statistics.median(self.cpu_seconds)


class Worker:
    """A running contender."""

    def __init__(self, python: str, request: Mapping[str, Any]) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in UNSET}
        self._process = subprocess.Popen(
            [python, "-m", "tests.bench.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
        )  # fmt: skip
        self._send(json.dumps(request))

    def start(self) -> None:
        self._send("run")

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contender ended with status {self._process.wait()}; its words are above")
        record: dict[str, Any] = json.loads(line)
        return record

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


@contextmanager
def running(contender: Contender) -> Iterator[tuple[list[Worker], dict[str, Any]]]:
    """Load a contender (all its parts) and give its workers and what it says about itself."""
    prompts: Sequence[list[int]] = contender.request["prompts"]
    share = -(-len(prompts) // contender.parts)
    requests = [dict(contender.request, prompts=prompts[at : at + share]) for at in range(0, len(prompts), share)]
    workers = [Worker(contender.python, request) for request in requests]
    try:
        abouts = [worker.answer()["about"] for worker in workers]
        yield workers, abouts[0]
    finally:
        for worker in workers:
            worker.close()


def measure(contenders: Sequence[Contender], rounds: int) -> dict[str, Timing]:
    """Time every contender once a round, interleaved; a contender of several parts takes as long as its slowest."""
    with ExitStack() as stack:
        loaded = {contender.label: stack.enter_context(running(contender)) for contender in contenders}
        timings = {label: Timing(about) for label, (_, about) in loaded.items()}
        for number in range(rounds):
            for label, (workers, _) in loaded.items():
                for worker in workers:
                    worker.start()
                answers = [worker.answer() for worker in workers]
                seconds = max(answer["seconds"] for answer in answers)
                timings[label].seconds.append(seconds)
                timings[label].cpu_seconds.append(sum(answer["cpu_seconds"] for answer in answers))
                sizes = [answer["private_bytes"] or 0 for answer in answers]
                timings[label].private_bytes = max([timings[label].private_bytes or 0, *sizes]) or None
                print(f"round {number + 1} of {rounds}: {label}: {seconds:.2f} s", file=sys.stderr)
    return timings


def fastest(contenders: Sequence[Contender]) -> Contender:
    """Try settings one after the other, two timed rounds each, and give the one that took least processor time."""
    seconds: dict[str, float] = {}
    for contender in contenders:
        seconds[contender.label] = min(measure([contender], 2)[contender.label].cpu_seconds)
    best = min(seconds, key=seconds.__getitem__)
    return next(contender for contender in contenders if contender.label == best)
