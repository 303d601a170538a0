"""BLAS threads are the process's: models in several threads do not take them from each other."""

import threading

import numpy as np  # noqa: F401  its BLAS is what is controlled: it must be there first
import pytest
import threadpoolctl

from ember.engine.blas_threads import BlasThreads

CONTROLLER = threadpoolctl.ThreadpoolController()
BLAS = CONTROLLER.select(user_api="blas").lib_controllers


@pytest.fixture(autouse=True)
def _two_threads():
    if not BLAS:
        pytest.skip("threadpoolctl knows no BLAS here")
    with BlasThreads().held(CONTROLLER, 2):
        yield


def now() -> int:
    return BLAS[0].num_threads


def inside(shared: BlasThreads, threads: int, leave: threading.Event) -> tuple[threading.Thread, threading.Event]:
    entered = threading.Event()

    def stay() -> None:
        with shared.held(CONTROLLER, threads):
            entered.set()
            assert leave.wait(10)

    thread = threading.Thread(target=stay)
    thread.start()
    return thread, entered


def test_the_last_to_leave_restores_what_was_before() -> None:
    shared, leave_a, leave_b = BlasThreads(), threading.Event(), threading.Event()
    a, entered = inside(shared, 1, leave_a)
    assert entered.wait(5)
    b, entered = inside(shared, 1, leave_b)
    assert entered.wait(5)
    leave_a.set()
    a.join()
    assert now() == 1  # b still computes
    leave_b.set()
    b.join()
    assert now() == 2


def test_who_wants_another_number_waits() -> None:
    shared, leave_a, leave_b = BlasThreads(), threading.Event(), threading.Event()
    a, entered_a = inside(shared, 1, leave_a)
    assert entered_a.wait(5)
    b, entered_b = inside(shared, 2, leave_b)
    assert not entered_b.wait(0.2)
    leave_a.set()
    assert entered_b.wait(5)
    assert now() == 2
    leave_b.set()
    a.join()
    b.join()


def test_an_evaluation_within_one_has_its_own_number_and_does_not_wait() -> None:
    shared = BlasThreads()
    with shared.held(CONTROLLER, 1):
        with shared.held(CONTROLLER, 2):
            assert now() == 2
        assert now() == 1
    assert now() == 2


def test_an_error_gives_the_threads_back() -> None:
    shared = BlasThreads()
    with pytest.raises(ValueError, match="as ordered"), shared.held(CONTROLLER, 1):
        raise ValueError("as ordered")
    assert now() == 2
    with shared.held(CONTROLLER, 1):
        assert now() == 1


def test_a_forked_process_does_not_wait_for_threads_it_does_not_have() -> None:
    shared, leave = BlasThreads(), threading.Event()
    a, entered = inside(shared, 1, leave)
    assert entered.wait(5)
    shared.forked()
    with shared.held(CONTROLLER, 2):
        assert now() == 2
    leave.set()
    a.join()


def test_any_thread_sets_them_whoever_did_before() -> None:
    """threadpoolctl 3.8 would ignore a second thread without a word."""
    CONTROLLER.limit(limits=1, user_api="blas")  # this thread has the control now, and does not give it back
    found = []

    def other() -> None:
        with BlasThreads().held(CONTROLLER, 2):
            found.append(now())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [2]
    assert now() == 1
