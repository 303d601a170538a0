"""Products shared with threads that wait in machine code: waking a sleeping thread would cost as much as a product.

Decoding one sequence is some two hundred products a token, each of some tens of microseconds. A helper thread spins on
a word of its mail while products follow one another, takes pieces of each as the calling thread does, and goes to
sleep when none has come for a while. Which thread computes a piece changes no bit of it (see `ember.engine.packed`).

States of a helper: ASLEEP -> IDLE (roused by the caller) -> POSTED (there is a product) -> TAKEN -> IDLE, or back to
IDLE where the caller was done before the helper began. From IDLE it falls ASLEEP by itself, or is dismissed.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.engine import atomics
from ember.engine.helpers import Helpers
from ember.engine.packed_kernels import f32, q4_1, q4_k, q6_k, q8_0
from ember.numba_support import HAVE_NUMBA, helper, kernel
from ember.work import Floats

if HAVE_NUMBA:
    from numba import carray, float32, uint8

ASLEEP, IDLE, POSTED, TAKEN = range(4)

# words of a helper's mail; what both threads write lies in cache lines of its own
STATE, NEXT = 0, 8
KIND, RAW, RAW_BYTES, X, OUT, ROWS, WIDTH, STRIDE, FIRST, END, PIECE = range(16, 27)
WORDS: Final = 32

POLITE: Final = 2_000
"""Looks at a word after which a waiting thread lets others have the core before each further one."""
PATIENCE: Final = 3_000
"""Looks at its mail after which a helper without work falls asleep: about half a millisecond."""
WORTH: Final = 60_000
"""Multiplications from which on a product is shared: a hand-over costs a microsecond or two, these some six."""
PIECES: Final = 16
"""Pieces of a product for each thread: at its end one waits for a piece of the other at most."""
LATE: Final = -1
"""What a product returns whose helper was waited for so long that it must have lost its core."""
LATE_LOOKS: Final = 20_000
"""Looks at a helper's mail, beyond those that a piece takes, from which on it is late: some half of a millisecond."""
PER_LOOK: Final = 100
"""Multiplications that a thread does at the least while another looks once, unless it has lost its core."""
SHORT_REST, LONG_REST, TRUSTED = 200, 20_000, 5_000
"""Products done alone after a late one: at first, at most; and products in time after which a rest is short again."""
UNIT: Final = 12
"""Rows of a piece are a multiple of this, so that tiles of weights fill it."""


@helper
def _product(kind: int, raw: Any, x: Any, out: Any, start: int, stop: int) -> None:
    if kind == 0:
        f32(raw, x, out, start, stop)
    elif kind == 1:
        q8_0(raw, x, out, start, stop)
    elif kind == 2:
        q4_1(raw, x, out, start, stop)
    elif kind == 3:
        q4_k(raw, x, out, start, stop)
    elif kind == 4:
        q6_k(raw, x, out, start, stop)


@helper
def _pieces(mail: Any, own: int, kind: int, raw: Any, x: Any, out: Any, end: int, piece: int) -> None:
    """Do the range of a thread, whose mail begins at word `own`, piece by piece; then what is left of the others'."""
    size = -(-end // (mail.size // WORDS * piece)) * piece
    for turn in range(0, mail.size, WORDS):
        at = (own + turn) % mail.size
        first = at // WORDS * size
        last = min(end, first + size)
        start = first + atomics.advance(mail, at + NEXT, piece)
        while start < last:
            _product(kind, raw, x, out, start, min(last, start + piece))
            start = first + atomics.advance(mail, at + NEXT, piece)


@helper
def _post(mail: Any, at: int, kind: int, raw: Any, x: Any, out: Any, end: int, piece: int) -> bool:
    """Offer a product to a helper; False if it sleeps."""
    if atomics.load(mail, at + STATE) != IDLE:
        return False
    mail[at + KIND], mail[at + RAW], mail[at + RAW_BYTES] = kind, raw.ctypes.data, raw.size
    mail[at + X], mail[at + ROWS], mail[at + WIDTH] = x.ctypes.data, x.shape[0], x.shape[1]
    mail[at + OUT], mail[at + STRIDE], mail[at + END], mail[at + PIECE] = out.ctypes.data, out.shape[1], end, piece
    return bool(atomics.swap(mail, at + STATE, IDLE, POSTED))


@helper
def _settle(mail: Any, at: int) -> int:
    """Take a product back that a helper has not begun, or wait for its last piece; returns how often it looked."""
    looks = 0
    atomics.swap(mail, at + STATE, POSTED, IDLE)
    while atomics.load(mail, at + STATE) == TAKEN:
        atomics.relax()
        looks += 1
    return looks


@helper
def _wait(looks: int) -> None:
    if looks > POLITE:
        atomics.give_way()
    else:
        atomics.relax()


@helper
def _help(mail: Any, at: int) -> None:
    """Do pieces of the product that the mail tells of."""
    raw = carray(atomics.pointer(mail[at + RAW]), (mail[at + RAW_BYTES],), uint8)
    x = carray(atomics.pointer(mail[at + X]), (mail[at + ROWS], mail[at + WIDTH]), float32)
    out = carray(atomics.pointer(mail[at + OUT]), (mail[at + ROWS], mail[at + STRIDE]), float32)
    _pieces(mail, at, mail[at + KIND], raw, x, out, mail[at + END], mail[at + PIECE])


@kernel("int64(int64[::1], int64, Array(uint8, 1, 'C', readonly=True), Array(float32, 2, 'C', readonly=True), "
        "float32[:, ::1], int64)")  # fmt: skip
def multiply(mail: Any, kind: int, raw: Any, x: Any, out: Any, end: int) -> int:
    """out[:, :end] = x @ weight[:end].T, with whoever is awake.

    Returns how many helpers slept who would have been of use, or LATE.
    """
    threads = mail.size // WORDS
    if threads == 1 or x.size * end < WORTH:
        _product(kind, raw, x, out, 0, end)
        return 0
    piece = (end // (threads * PIECES) // UNIT + 1) * UNIT
    for at in range(0, mail.size, WORDS):
        atomics.store(mail, at + NEXT, 0)
    asleep = 0
    for at in range(WORDS, mail.size, WORDS):
        if not _post(mail, at, kind, raw, x, out, end, piece):
            asleep += 1
    _pieces(mail, 0, kind, raw, x, out, end, piece)
    looks = 0
    for at in range(WORDS, mail.size, WORDS):
        looks = max(looks, _settle(mail, at))
    return LATE if looks > LATE_LOOKS + x.size * piece // PER_LOOK else asleep


@kernel("void(int64[::1], int64)")
def serve(mail: Any, at: int) -> None:
    """Be the helper whose mail begins at word `at` until no product has come for a while."""
    looks = 0
    while True:
        state = atomics.load(mail, at + STATE)
        if state == POSTED and atomics.swap(mail, at + STATE, POSTED, TAKEN):
            _help(mail, at)
            atomics.store(mail, at + STATE, IDLE)
            looks = 0
        elif state == ASLEEP or (looks > PATIENCE and atomics.swap(mail, at + STATE, IDLE, ASLEEP)):
            return
        looks += 1
        _wait(looks)


class Relay:
    """The calling thread and `threads` - 1 helpers, for products of packed weights.

    On a machine that does other work a helper may lose its core in the middle of a piece, and the caller then waits for
    it: after such a product the relay rests, and longer each time that it happens again.
    """

    def __init__(self, threads: int) -> None:
        self._mail = np.zeros(threads * WORDS, np.int64)
        self._alone = np.zeros(WORDS, np.int64)
        self._helpers = Helpers(max(1, threads - 1), "ember-relay", self._forget_helpers)
        self._rest = 0
        self._pause = SHORT_REST
        self._in_time = 0

    def multiply(self, kind: int, raw: NDArray[np.uint8], x: Floats, out: Floats) -> None:
        """out [S, N] = x [S, K] @ weight.T; `kind` is the place of the stored type in `packed_kernels.KINDS`."""
        if self._rest or len(self._mail) == WORDS:
            self._rest = max(0, self._rest - 1)
            multiply(self._alone, kind, raw, x, out, out.shape[1])
            return
        asleep = multiply(self._mail, kind, raw, x, out, out.shape[1])
        if asleep == LATE:
            self._retire()
            return
        self._in_time += 1
        if self._in_time == TRUSTED:
            self._pause = SHORT_REST
        if asleep:
            self._rouse()

    def _retire(self) -> None:
        self._rest, self._in_time = self._pause, 0
        self._pause = min(2 * self._pause, LONG_REST)

    def _rouse(self) -> None:
        """Wake who sleeps: for the products that follow, since waking takes longer than one."""
        for at in range(WORDS, len(self._mail), WORDS):
            if self._mail[at + STATE] == ASLEEP:
                self._wake(at)

    def _wake(self, at: int) -> None:
        begun = None
        self._mail[at + STATE] = IDLE
        try:
            begun = self._helpers.begin(serve, self._mail, at)
        finally:
            if begun is None:  # nobody serves: a product posted there would be taken back each time
                self._mail[at + STATE] = ASLEEP
        if begun is None:
            self._retire()

    def _forget_helpers(self) -> None:
        self._mail[STATE::WORDS] = ASLEEP
