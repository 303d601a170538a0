"""Units of one process take turns: one is computed, one more may be written."""

import threading
from collections.abc import Callable

import pytest

from pipelines.turns import Turn

WAIT = 0.2


class Unit:
    """A unit in a thread of its own, which goes on from step to step when it is told to."""

    def __init__(self, *, alone: bool = False) -> None:
        self.begun, self.handed_on, self.done = threading.Event(), threading.Event(), threading.Event()
        self._computed, self._written = threading.Event(), threading.Event()
        self._step_aside: Callable[[], None] | None = None if alone else self.handed_on.set
        self.told: list[str] = []
        threading.Thread(target=self._run, daemon=True).start()

    def compute(self) -> None:
        self._computed.set()

    def write(self) -> None:
        self._written.set()

    def _run(self) -> None:
        with Turn(self._step_aside) as turn:
            self.begun.set()
            self._computed.wait()
            turn.hand_on(lambda: self.told.append("computed"))
            self._written.wait()
        self.done.set()


def finish(*units: Unit) -> None:
    for unit in units:
        unit.compute()
        unit.write()
    assert all(unit.done.wait(5) for unit in units)


def test_a_unit_is_computed_while_the_one_before_it_is_written() -> None:
    first = Unit()
    assert first.begun.wait(5)
    second = Unit()
    assert not second.begun.wait(WAIT)
    first.compute()
    assert first.handed_on.wait(5)
    assert first.told == ["computed"]
    assert second.begun.wait(5)
    assert not first.done.is_set()
    finish(first, second)


def test_no_more_than_one_unit_waits_to_be_written() -> None:
    first = Unit()
    assert first.begun.wait(5)
    first.compute()
    second = Unit()
    assert second.begun.wait(5)
    second.compute()
    third = Unit()
    assert not second.handed_on.wait(WAIT)
    assert not third.begun.is_set()
    assert second.told == []
    first.write()
    assert second.handed_on.wait(5)
    assert third.begun.wait(5)
    finish(first, second, third)


def test_a_unit_by_itself_waits_for_the_one_before_it_and_lets_none_begin() -> None:
    first = Unit()
    assert first.begun.wait(5)
    first.compute()
    assert first.handed_on.wait(5)
    alone = Unit(alone=True)
    assert not alone.begun.wait(WAIT)
    first.write()
    assert alone.begun.wait(5)
    last = Unit()
    alone.compute()
    assert not last.begun.wait(WAIT)
    assert alone.told == []
    finish(alone, last)


@pytest.mark.parametrize("computed", [False, True])
def test_a_unit_that_fails_gives_its_turn_back(computed: bool) -> None:
    def fail() -> None:
        with Turn(lambda: None) as turn:
            if computed:
                turn.hand_on(lambda: None)
            raise ValueError("as ordered")

    with pytest.raises(ValueError, match="as ordered"):
        fail()
    with Turn(None):
        pass


def test_a_unit_that_cannot_note_that_it_is_computed_lets_others_begin_and_be_written() -> None:
    def fail() -> None:
        raise ValueError("as ordered")

    with pytest.raises(ValueError, match="as ordered"), Turn(lambda: None) as turn:
        turn.hand_on(fail)
    with Turn(None):
        pass
    finish(Unit())
