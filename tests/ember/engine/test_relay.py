"""Products shared with threads that wait in machine code: whoever does a piece, and whenever, the bits are the same."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ember.engine import relay
from ember.engine.packed_kernels import BLOCK_VALUES, KINDS, PRODUCTS
from ember.engine.relay import ASLEEP, IDLE, NEXT, POSTED, STATE, TAKEN, WORDS, Relay
from ember.gguf.types import TYPES_BY_NAME
from ember.numba_support import HAVE_NUMBA

pytestmark = pytest.mark.skipif(not HAVE_NUMBA, reason="the relay is machine code, which needs numba")
RNG = np.random.default_rng(11)


def product(name: str, rows: int, width: int, count: int):
    """A product that is worth sharing: kind, stored bytes, x, and what its kernel makes of it alone."""
    info = TYPES_BY_NAME[name]
    blocks = count * width // info.block_size
    raw = RNG.integers(0, 60, (blocks, info.type_size), dtype=np.uint8).reshape(-1)  # small bytes: finite scales
    x = RNG.standard_normal((rows, width)).astype(np.float32)
    alone = np.zeros((rows, count), np.float32)
    PRODUCTS[name](raw, x, alone, 0, count)
    return KINDS.index(name), raw, x, alone


@given(name=st.sampled_from(KINDS), threads=st.integers(1, 4), rows=st.integers(1, 9), count=st.integers(600, 2000))
@settings(max_examples=40, deadline=None)
def test_products_are_those_of_one_thread(name, threads, rows, count) -> None:
    kind, raw, x, alone = product(name, rows, BLOCK_VALUES[name] * (1 if BLOCK_VALUES[name] > 100 else 8), count)
    shared = Relay(threads)
    for _ in range(5):  # the first finds its helpers asleep
        out = np.full_like(alone, np.nan)
        shared.multiply(kind, raw, x, out)
        assert np.array_equal(out, alone, equal_nan=True)


def test_thousands_of_products_with_helpers_that_come_and_go() -> None:
    shared, cases = Relay(3), [product("Q8_0", rows, 256, count) for rows, count in ((1, 601), (1, 2048), (4, 777))]
    for n in range(3000):
        kind, raw, x, alone = cases[n % 3]
        out = np.full_like(alone, np.nan)
        shared.multiply(kind, raw, x, out)
        assert np.array_equal(out, alone, equal_nan=True)
        if n % 500 == 0:
            time.sleep(0.01)  # they fall asleep meanwhile


def test_a_product_nobody_has_begun_is_taken_back() -> None:
    kind, raw, x, alone = product("F32", 1, 256, 1000)
    mail = np.zeros(3 * WORDS, np.int64)
    mail[[WORDS + STATE, 2 * WORDS + STATE]] = IDLE  # and nobody serves
    out = np.full_like(alone, np.nan)
    assert relay.multiply(mail, kind, raw, x, out, 1000) == 0
    assert np.array_equal(out, alone)
    assert mail[WORDS + STATE] == mail[2 * WORDS + STATE] == IDLE


def test_the_caller_is_told_of_sleepers_and_small_products_need_none() -> None:
    kind, raw, x, alone = product("F32", 1, 256, 1000)
    mail = np.zeros(3 * WORDS, np.int64)
    assert relay.multiply(mail, kind, raw, x, np.empty_like(alone), 1000) == 2
    assert relay.multiply(mail, kind, raw, x, np.empty_like(alone), 100) == 0


def test_a_helper_does_what_its_mail_says_and_falls_asleep() -> None:
    kind, raw, x, alone = product("Q8_0", 2, 256, 1000)
    mail, out = np.zeros(2 * WORDS, np.int64), np.full_like(alone, np.nan)
    at = WORDS
    mail[at + relay.KIND], mail[at + relay.RAW], mail[at + relay.RAW_BYTES] = kind, raw.ctypes.data, raw.size
    mail[at + relay.X], mail[at + relay.ROWS], mail[at + relay.WIDTH] = x.ctypes.data, 2, 256
    mail[at + relay.OUT], mail[at + relay.STRIDE], mail[at + relay.END] = out.ctypes.data, 1000, 1000
    mail[at + relay.PIECE], mail[at + STATE] = 120, POSTED
    relay.serve(mail, at)  # returns once nothing has come for a while
    assert mail[at + STATE] == ASLEEP
    assert np.array_equal(out, alone, equal_nan=True)
    assert mail[at + NEXT] >= 480  # its own range first, then the caller's, who did nothing here
    assert mail[NEXT] >= 520


def test_a_helper_that_does_not_end_in_time_is_told_of() -> None:
    kind, raw, x, alone = product("F32", 1, 256, 1000)
    mail, out = np.zeros(2 * WORDS, np.int64), np.empty_like(alone)
    mail[WORDS + STATE] = TAKEN  # and has lost its core

    def goes_on() -> None:
        time.sleep(0.3)
        mail[WORDS + STATE] = IDLE

    helper = threading.Thread(target=goes_on)
    helper.start()
    assert relay.multiply(mail, kind, raw, x, out, 1000) == relay.LATE
    helper.join()
    assert np.array_equal(out, alone)


def test_a_late_product_gives_the_relay_a_rest_that_grows(monkeypatch) -> None:
    kind, raw, x, alone = product("F32", 1, 256, 1000)
    shared, rests, really = Relay(2), [], relay.multiply

    def late(*given):
        really(*given)
        return relay.LATE

    monkeypatch.setattr(relay, "multiply", late)
    out = np.empty_like(alone)
    for _ in range(10):
        shared.multiply(kind, raw, x, out)
        rests.append(shared._rest)
        shared._rest = 0
    assert rests == [200, 400, 800, 1600, 3200, 6400, 12800, 20000, 20000, 20000]
    monkeypatch.setattr(relay, "multiply", lambda *given: 0 * really(*given))  # none is
    for _ in range(relay.TRUSTED):
        shared.multiply(kind, raw, x, out)
    monkeypatch.setattr(relay, "multiply", late)
    shared.multiply(kind, raw, x, out)
    assert shared._rest == 200
    shared.multiply(kind, raw, x, out)  # alone
    assert shared._rest == 199
    assert np.array_equal(out, alone)


def test_a_relay_whose_helpers_cannot_be_woken_rests_and_is_right(monkeypatch) -> None:
    kind, raw, x, alone = product("F32", 1, 256, 1000)
    shared, out = Relay(3), np.empty_like(alone)
    monkeypatch.setattr("ember.engine.helpers.Helpers.begin", lambda *_: None)
    shared.multiply(kind, raw, x, out)
    assert np.array_equal(out, alone)
    assert shared._rest > 0
    assert shared._mail[STATE::WORDS].tolist() == [ASLEEP] * 3


def test_a_forked_relay_takes_nobody_for_awake() -> None:
    kind, raw, x, alone = product("F32", 1, 256, 1000)
    shared, out = Relay(2), np.empty_like(alone)
    shared._mail[WORDS + STATE] = IDLE
    shared._helpers.renew()
    assert shared._mail[STATE::WORDS].tolist() == [ASLEEP] * 2
    shared.multiply(kind, raw, x, out)
    assert np.array_equal(out, alone)
