"""A digest of each row of token ids: two bytes that differ if the ids do, but for once in 65,536 times."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def digests(rows: Iterable[Sequence[int]]) -> NDArray[np.uint16]:
    """Return the digest of each row of ids."""
    return np.array([_digest(row) for row in rows], np.uint16)


def _digest(row: Sequence[int]) -> int:
    return int.from_bytes(blake2b(np.array(row, "<i4").tobytes(), digest_size=2).digest(), "little")
