"""What a probe is asked to tell: the values of one label as numbers, and the random labels of its control task."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
"""A number from 0 for each row."""


@dataclass(frozen=True, slots=True)
class Target:
    """A label over the stimuli that have it."""

    label: str
    classes: tuple[str, ...]
    """Values in the order of their codes: sorted, so that codes do not depend on the order of stimuli."""
    rows: Codes
    """Places of the stimuli, ascending."""
    codes: Codes


def make_target(label: str, values: Sequence[str | None], exclude: Sequence[str] = ()) -> Target:
    """Number the values of a label; stimuli without it, or with one of `exclude`, are left out."""
    rows = np.array([i for i, value in enumerate(values) if value is not None and value not in exclude], np.int64)
    kept = [values[i] for i in rows.tolist()]
    classes, codes = encode([value for value in kept if value is not None])
    return Target(label, classes, rows, codes)


def encode(values: Sequence[str]) -> tuple[tuple[str, ...], Codes]:
    """Number texts by their sorted order."""
    classes = tuple(sorted(set(values)))
    number = {value: i for i, value in enumerate(classes)}
    return classes, np.array([number[value] for value in values], np.int64)


def generator(seed: int, *words: str) -> np.random.Generator:
    """Return random numbers that depend on a seed and on what they are for, and on nothing else."""
    digest = hashlib.sha256("\0".join([str(seed), *words]).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def control_codes(codes: Codes, types: Codes, random: np.random.Generator) -> Codes:
    """Give every type one random label for all of its rows, drawn as often as labels occur (Hewitt and Liang 2019).

    A probe can learn that only by remembering types: what it reaches is what its capacity alone would give.
    """
    drawn = codes[random.integers(0, len(codes), int(types.max()) + 1)]
    found = drawn[types]
    if len(np.unique(found)) == 1 and len(np.unique(types)) > 1:
        # one label for all would be no task
        other = next(code for code in np.unique(codes) if code != found[0])
        found = np.where(types == types[0], other, found)
    return found
