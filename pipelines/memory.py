"""Giving memory that was freed back to the system.

The C library keeps what lies between blocks still in use, for later. After a phase that held much for a short time, as
the making of a plan, nobody asks for it again.
"""

import ctypes
from contextlib import suppress


def give_back() -> None:
    """Give back what is free; takes milliseconds, and does nothing where the C library has no way to do so."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
