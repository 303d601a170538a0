"""What texts alone tell: bags of character n-grams and of token ids, as features for the same probes.

A label that these baselines reach is in the text's surface; that a model's states hold it says little. What stands
where a state was taken is counted apart from the prompt, so that it is not lost among all that the prompt says.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pipelines.probes.design import Matrix
from pipelines.probes.seen import Place

LONGEST: Final = 3
"""Characters of the longest n-gram."""
START, END = "\x02", "\x03"
"""Marks of the beginning and end of the text at a place: prefixes and suffixes have n-grams of their own."""
MOST: Final = 8192
"""Features that are kept at most."""
ALWAYS: Final = 2048
"""Features that are kept however many prompts there are."""
NUMBERS: Final = 1 << 24
"""Numbers of a matrix, as far as ALWAYS allows: what a worker has room and time for."""


@dataclass(frozen=True, slots=True)
class Bag:
    """Features of a baseline."""

    counts: Matrix
    """[prompts, kept] how often each feature is there."""
    found: int
    """Features that tell some prompts apart, kept or not."""


def most(prompts: int) -> int:
    """Features of so many prompts that are kept at most; the most frequent ones, of equals the first in order."""
    return max(ALWAYS, min(MOST, NUMBERS // max(prompts, 1)))


def character_features(prompts: Sequence[str], places: Sequence[Place] = ()) -> Bag:
    """Counts [prompts, n-grams] of all runs of 1 to 3 characters; of the text at places, if given, apart."""
    bags: list[Counter[Any]] = [Counter(_ngrams(prompt)) for prompt in prompts]
    if places:
        for bag, place in zip(bags, places, strict=True):
            bag.update(("at", found) for found in _ngrams(f"{START}{place.text}{END}" if place.text else ""))
    return _counts(bags)


def token_features(token_ids: Sequence[Sequence[int]], places: Sequence[Place] = ()) -> Bag:
    """Counts [prompts, ids] of the tokens of prompts, and apart of those at places and beside them.

    Without `places` states are those of the last token.
    """
    seen = places or [Place("", ids[-1:]) for ids in token_ids]
    bags = [Counter(("any", one) for one in ids) for ids in token_ids]
    for bag, place in zip(bags, seen, strict=True):
        bag.update(("at", one) for one in place.tokens)
        bag.update(("beside", one) for one in place.beside)
    return _counts(bags)


def _ngrams(text: str) -> list[str]:
    return [text[i : i + n] for n in range(1, LONGEST + 1) for i in range(len(text) - n + 1)]


def _counts(bags: Sequence[Counter[Any]]) -> Bag:
    """Features that differ between some prompts; what all have alike tells nothing."""
    prompts: Counter[Hashable] = Counter()
    columns: dict[Hashable, list[tuple[int, int]]] = {}
    for row, bag in enumerate(bags):
        for key, times in bag.items():
            prompts[key] += 1
            columns.setdefault(key, []).append((row, times))
    telling = [key for key, found in columns.items() if prompts[key] < len(bags) or len({n for _, n in found}) > 1]
    kept = sorted(telling, key=lambda key: (-prompts[key], str(key)))[: most(len(bags))]
    out = np.zeros((len(bags), max(1, len(kept))), np.float32)
    for column, key in enumerate(kept):
        for row, times in columns[key]:
            out[row, column] = times
    return Bag(out, len(telling))
