"""What prompts alone tell: bags of character n-grams and of token ids, as features for the same probes.

A label that these baselines reach is in the prompt's surface; that a model's states hold it says little.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from pipelines.probes.design import Matrix

LONGEST: Final = 3
"""Characters of the longest n-gram."""
MOST: Final = 2048
"""Features of a baseline; the most frequent ones are kept, of equals the first in order."""


def character_features(prompts: Sequence[str]) -> Matrix:
    """Counts [prompts, n-grams] of all runs of 1 to 3 characters."""
    return _counts([_ngrams(prompt) for prompt in prompts])


def token_features(token_ids: Sequence[Sequence[int]]) -> Matrix:
    """Counts [prompts, ids] of the tokens of prompts, and of the last token apart: it is what states are taken at."""
    return _counts([Counter([*(("any", one) for one in ids), ("last", ids[-1])]) for ids in token_ids])


def _ngrams(prompt: str) -> Counter[str]:
    return Counter(prompt[i : i + n] for n in range(1, LONGEST + 1) for i in range(len(prompt) - n + 1))


def _counts(bags: Sequence[Counter[Any]]) -> Matrix:
    """Features that differ between some prompts; what all have alike tells nothing."""
    prompts: Counter[Hashable] = Counter()
    columns: dict[Hashable, list[tuple[int, int]]] = {}
    for row, bag in enumerate(bags):
        for key, times in bag.items():
            prompts[key] += 1
            columns.setdefault(key, []).append((row, times))
    telling = [key for key, found in columns.items() if prompts[key] < len(bags) or len({n for _, n in found}) > 1]
    kept = sorted(telling, key=lambda key: (-prompts[key], str(key)))[:MOST]
    out = np.zeros((len(bags), max(1, len(kept))), np.float32)
    for column, key in enumerate(kept):
        for row, times in columns[key]:
            out[row, column] = times
    return out
