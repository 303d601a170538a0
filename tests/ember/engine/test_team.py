"""Threads share rows, and nobody can tell from the bits."""

import os
import signal
import threading
import time

import numpy as np
import pytest
import threadpoolctl

from ember.engine import team
from ember.engine.fast import FastBackend
from ember.engine.runner import run_unit
from ember.engine.team import Team
from ember.engine.weights import WeightStore
from ember.gguf import decode_fast, open_gguf
from ember.models import bind_model
from ember.work import CaptureWork, UnitWork
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import PLAIN

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("family", PLAIN)
def test_threads_change_no_bit_of_any_family(tmp_path, monkeypatch, family) -> None:
    monkeypatch.setattr("ember.engine.team.ALONE", 0)
    file = open_gguf(tiny_family(tmp_path / "m.gguf", PLAIN[family]))
    model = bind_model(file)
    prompts = tuple(RNG.integers(0, model.card.vocab_size, n).astype(np.int32) for n in (1, 9, 40, 33))
    everywhere = tuple(tuple(range(len(p))) for p in prompts)
    work = UnitWork(prompts, (CaptureWork("after_layer", tuple(range(model.card.n_layers)), everywhere),), max_tokens=4)
    found = []
    with threadpoolctl.threadpool_limits(1, "blas"):
        for threads in (1, 2, 5):
            backend = FastBackend(WeightStore(file, decode_fast.decode, "streamed"), Team(threads))
            found.append(run_unit(model, backend, work))
    for other in found[1:]:
        assert np.array_equal(other.captures[0], found[0].captures[0])
        assert other.produced == found[0].produced


@pytest.mark.parametrize(("n", "threads", "unit"), [(1, 3, 4), (4, 3, 4), (17, 2, 4), (9, 4, 1), (100, 7, 4)])
def test_every_row_is_done_once(n, threads, unit) -> None:
    done, lock = [], threading.Lock()

    def part(start: int, stop: int) -> None:
        assert start % unit == 0
        with lock:
            done.extend(range(start, stop))

    Team(threads).share(n, 1e9, part, unit)
    assert sorted(done) == list(range(n))


def test_what_a_helper_raises_reaches_the_caller() -> None:
    def part(start: int, stop: int) -> None:
        if start:
            raise ValueError("from a helper")

    with pytest.raises(ValueError, match="from a helper"):
        Team(2).share(100, 1e9, part)


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_no_helper_is_at_work_any_more_when_the_caller_is_told(raised) -> None:
    begun, ended = threading.Event(), []

    def part(start: int, stop: int) -> None:
        if not start:
            assert begun.wait(5)
            raise raised
        begun.set()
        time.sleep(0.2)
        ended.append(start)

    with pytest.raises(raised):
        Team(2).share(100, 1e9, part)
    assert ended == [52]


def test_an_interrupt_while_helpers_are_waited_for_is_told_once_they_are_done(monkeypatch) -> None:
    ended, really = [], team.wait

    def interrupted(others):
        monkeypatch.setattr(team, "wait", really)
        raise KeyboardInterrupt

    def part(start: int, stop: int) -> None:
        if start:
            time.sleep(0.2)
            ended.append(start)

    monkeypatch.setattr(team, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Team(2).share(100, 1e9, part)
    assert ended == [52]


def test_without_threads_the_caller_does_it_all(monkeypatch) -> None:
    done = []
    monkeypatch.setattr("ember.engine.helpers.Helpers.begin", lambda *_: None)
    Team(3).share(100, 1e9, lambda start, stop: done.extend(range(start, stop)))
    assert sorted(done) == list(range(100))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    shared, done = Team(2), []
    shared.share(100, 1e9, lambda start, stop: done.extend(range(start, stop)))  # the helper is there
    child = os.fork()
    if not child:
        found = []
        shared.share(100, 1e9, lambda start, stop: found.extend(range(start, stop)))
        os._exit(0 if sorted(found) == list(range(100)) else 1)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
