"""From what the engine said of scored texts to the columns of `generations`."""

from collections.abc import Sequence
from typing import Any

from ember.scoring import ScoredContinuation, likeliest, scored
from ember.work import Score, TopTokens, UnitResult
from pipelines.rows import NOT_SCORED, ScoreRow
from pipelines.unit_file import UnitFile


def score_rows(units: UnitFile, start: int, end: int, result: UnitResult) -> list[ScoreRow]:
    """Give each sample of the unit [start, end) its scores."""
    rows, scores = [], iter(result.scores)
    for sample in range(start, end):
        count = len(units.scores.of_sample(sample).all_cuts)
        top = result.top[sample - start] if units.top_k else None
        rows.append(score_row(units, sample, [next(scores) for _ in range(count)], top))
    return rows


def score_row(units: UnitFile, sample: int, scores: Sequence[Score], top: TopTokens | None) -> ScoreRow:
    """Columns of one sample; `scores` are those of its continuations, the expected text first."""
    if not scores and top is None:
        return NOT_SCORED
    texts, wanted = units.scores.of_sample(sample), units.expected[sample]
    named = ([wanted or ""] if texts.expected else []) + list(texts.choices)
    found = [scored(text, cut, score) for text, cut, score in zip(named, texts.all_cuts, scores, strict=True)]
    expected = found.pop(0) if texts.expected else None
    return ScoreRow(
        **(_expected(expected) if expected else {}),
        **(_choices(found, wanted) if found else {}),
        top_ids=top.token_ids if top else (),
        top_log_probabilities=top.log_probabilities if top else (),
    )


def _expected(found: ScoredContinuation) -> dict[str, Any]:
    return {
        "expected_log_probability": found.log_probability,
        "expected_tokens": len(found.token_ids),
        "expected_bytes": found.n_bytes,
        "expected_characters": found.n_characters,
        "expected_rank": found.rank,
        "expected_token_ids": found.token_ids,
        "expected_log_probabilities": found.log_probabilities,
        "expected_ranks": found.ranks,
        "merged": found.merged,
    }


def _choices(found: Sequence[ScoredContinuation], wanted: str | None) -> dict[str, Any]:
    chosen = likeliest(found)
    return {
        "choices": [one.text for one in found],
        "choice_log_probabilities": [one.log_probability for one in found],
        "choice_tokens": [len(one.token_ids) for one in found],
        "choice_merged": [one.merged for one in found],
        "choice": chosen,
        "choice_per_token": likeliest(found, "token"),
        "choice_per_byte": likeliest(found, "byte"),
        "choice_correct": found[chosen].text == wanted,
    }
