"""Whether the rows of `generations` say what their own columns and the manifest give: sums, choices, comparisons.

Pure functions of decoded tables; each gives one line per problem. Nothing here needs the model: what the engine
measured is taken as it is, what follows from it is computed again.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from ember.scoring import first_largest, total
from pipelines import tables
from pipelines.rows import ABSENT, NOT_SCORED
from pipelines.stimuli.expect import STEPS, compare

Row = Mapping[str, Any]
MASS: Final = 1e-6
"""By how much the probabilities of different tokens may exceed 1 together, for rounding."""


def answer_problems(group: tables.Table, generation: Mapping[str, Any] | None) -> Iterator[str]:
    """Check every row of a row group; `generation` is the manifest's record."""
    steps = _steps(generation)
    for row in group.to_pylist():
        for says, holds in _RULES:
            if not holds(row):
                yield f"sample {row['sample_index']}: {says}"
        if not _compared(row, steps):
            yield f"sample {row['sample_index']}: correct or a match is not what comparing its two texts gives"


def _steps(generation: Mapping[str, Any] | None) -> list[str]:
    named = generation.get("normalize") if generation else None
    return [step for step in STEPS if step in named] if isinstance(named, list) else []


def _compared(row: Row, steps: Sequence[str]) -> bool:
    found = tuple(row[name] for name in ("correct", "match_raw", "match_trimmed", "match_nfc_trimmed"))
    if not row["has_expected"] or not row["stopped"]:
        return found == (False,) * 4
    match = compare(row["expected"], row["text"], row["expect_mode"], steps)
    return found == (match.correct, match.raw, match.trimmed, match.nfc)


def _expected_is_whole(row: Row) -> bool:
    lists = [row[name] for name in ("expected_token_ids", "expected_log_probabilities", "expected_ranks")]
    counts = (row["expected_bytes"], row["expected_characters"])
    if row["expected_tokens"] == ABSENT:
        absent = (*counts, row["expected_rank"]) == (ABSENT,) * 3 and not any(lists)
        return absent and math.isnan(row["expected_log_probability"])
    if not row["has_expected"] or {len(values) for values in lists} != {row["expected_tokens"]} or not lists[0]:
        return False
    text, ranks = row["expected"], lists[2]
    return counts == (len(text.encode()), len(text)) and row["expected_rank"] == ranks[0] and min(ranks) >= 1


def _expected_adds_up(row: Row) -> bool:
    if not row["expected_log_probabilities"]:
        return True
    return bool(total(row["expected_log_probabilities"]) == row["expected_log_probability"])


def _are_probabilities(row: Row) -> bool:
    lists = ("expected_log_probabilities", "choice_log_probabilities", "top_log_probabilities")
    return all(value <= MASS for name in lists for value in row[name])


def _choices_are_whole(row: Row) -> bool:
    names = ("choices", "choice_log_probabilities", "choice_tokens", "choice_merged")
    return len({len(row[name]) for name in names}) == 1 and all(count >= 1 for count in row["choice_tokens"])


def _choice_is_likeliest(row: Row) -> bool:
    found = (row["choice"], row["choice_per_token"], row["choice_per_byte"], row["choice_correct"])
    if not _choices_are_whole(row) or not row["choices"]:
        return found == (ABSENT, ABSENT, ABSENT, NOT_SCORED.choice_correct)
    sums = row["choice_log_probabilities"]
    lengths = [len(text.encode()) for text in row["choices"]]
    chosen = first_largest(sums)
    right = row["has_expected"] and row["choices"][chosen] == row["expected"]
    return found == (chosen, _by_mean(sums, row["choice_tokens"]), _by_mean(sums, lengths), right)


def _by_mean(sums: Sequence[float], counts: Sequence[int]) -> int:
    return first_largest([value / count if count else value for value, count in zip(sums, counts, strict=True)])


def _top_is_in_order(row: Row) -> bool:
    values = row["top_log_probabilities"]
    in_order = all(a >= b for a, b in pairwise(values))
    distinct = len(values) == len(row["top_ids"]) == len(set(row["top_ids"]))
    return distinct and in_order and sum(math.exp(min(value, 1.0)) for value in values) <= 1 + MASS


_RULES: Final[tuple[tuple[str, Callable[[Row], bool]], ...]] = (
    ("its expected_* columns disagree in length, or with the expected text", _expected_is_whole),
    ("expected_log_probability is not the sum over the tokens", _expected_adds_up),
    ("a log-probability is above 0", _are_probabilities),
    ("its choices, their log-probabilities and tokens differ in number", _choices_are_whole),
    ("choice, choice_per_* or choice_correct is not what the log-probabilities give", _choice_is_likeliest),
    ("top_ids are not distinct, likeliest first, of probabilities that add up to at most 1", _top_is_in_order),
)
