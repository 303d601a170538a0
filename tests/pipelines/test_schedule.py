import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.pieces import Piece
from pipelines.schedule import Cause, Schedule

KILLED = Cause("signal", "signal 9", "host-a")


def play(schedule: Schedule, killers: set[int], *, window: int = 3) -> tuple[set[int], int]:
    """Run a schedule whose tries fail when they hold a killer; returns samples done and how many workers died."""
    done: set[int] = set()
    deaths, running = 0, []
    while schedule.unfinished:
        while len(running) < window and (attempt := schedule.take()):
            running.append(attempt.piece)
        piece = running.pop(0)
        samples = set(range(piece.start, piece.end))
        if samples & killers:
            deaths += 1
            schedule.failed(piece, KILLED)
        else:
            assert not samples & done
            done |= samples
            schedule.done(piece)
    return done, deaths


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.data())
def test_exactly_the_killers_are_isolated(sizes: list[int], data: st.DataObject) -> None:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    units = [Piece(i, "", end - size, end) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))]
    killers = data.draw(st.sets(st.integers(0, ends[-1] - 1), max_size=3))
    schedule = Schedule(units, gate_unit=0)
    done, deaths = play(schedule, killers)
    assert {isolated.piece.start for isolated in schedule.isolated} == killers
    assert done == set(range(ends[-1])) - killers
    bound = sum(4 + math.ceil(math.log2(max(sizes))) for _ in killers)
    assert deaths <= bound


def test_one_unlucky_death_changes_nothing() -> None:
    schedule = Schedule([Piece(0, "", 0, 8)])
    first = schedule.take()
    assert first is not None
    assert schedule.failed(first.piece, KILLED) == "retry"
    again = schedule.take()
    assert again is not None
    assert (again.piece, again.number, again.avoid) == (Piece(0, "", 0, 8), 1, "host-a")


def test_a_task_that_was_only_waiting_is_not_blamed() -> None:
    schedule = Schedule([Piece(0, "", 0, 8)])
    for number in range(20):
        attempt = schedule.take()
        assert attempt is not None
        assert attempt.number == number
        schedule.put_back(attempt.piece)
    assert schedule.isolated == []
    attempt = schedule.take()
    assert attempt is not None
    assert attempt.piece.path == ""


def test_what_is_done_again_is_alone_in_its_worker() -> None:
    schedule = Schedule([Piece(0, "", 0, 8), Piece(1, "", 8, 16), Piece(2, "", 16, 24)])
    first, second, third = schedule.take(), schedule.take(), schedule.take()
    assert first is not None
    assert second is not None
    assert third is not None
    assert [one.alone for one in (first, second, third)] == [False, False, False]
    schedule.failed(first.piece, KILLED)
    schedule.put_back(second.piece, alone=True)
    schedule.put_back(third.piece)
    again = [schedule.take() for _ in range(3)]
    assert {attempt.piece.unit: attempt.alone for attempt in again if attempt} == {0: True, 1: True, 2: False}
    assert schedule.put_back(second.piece) == "retry"
    assert (once_more := schedule.take())
    assert once_more.alone
    assert schedule.failed(first.piece, KILLED) == "split"
    halves = [schedule.take(), schedule.take()]
    assert [half.alone for half in halves if half] == [True, True]


def test_the_first_unit_is_handed_out_first_and_nobody_waits_for_it() -> None:
    schedule = Schedule([Piece(0, "", 0, 4), Piece(1, "", 4, 8)], gate_unit=0)
    first = schedule.take()
    assert first is not None
    assert first.piece.unit == 0
    second = schedule.take()
    assert second is not None
    assert second.piece.unit == 1
    schedule.done(second.piece)
    assert not schedule.gate_open
    schedule.done(first.piece)
    assert schedule.gate_open


def test_a_lone_prompt_gets_two_tries() -> None:
    schedule = Schedule([Piece(0, "", 0, 1)])
    outcomes = []
    while (attempt := schedule.take()) is not None:
        outcomes.append(schedule.failed(attempt.piece, KILLED))
    assert outcomes == ["retry", "isolated"]
    assert schedule.isolated[0].tries == 2


@pytest.mark.parametrize("window", [1, 2, 5])
def test_order_of_outcomes_does_not_matter(window: int) -> None:
    schedule = Schedule([Piece(0, "", 0, 16), Piece(1, "", 16, 32)], gate_unit=0)
    done, _ = play(schedule, {5, 20}, window=window)
    assert done == set(range(32)) - {5, 20}
