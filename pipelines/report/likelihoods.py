"""How likely the expected texts were: log-probabilities and ranks, for right and wrong answers."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipelines.report import charts
from pipelines.report.blocks import (
    Block,
    Cells,
    Chapter,
    Code,
    Figure,
    Number,
    Paragraph,
    Prose,
    Section,
    Table,
    percent,
)
from pipelines.report.facts import Facts
from pipelines.report.intervals import wilson

HEAD: Final = (
    "answers", "prompts", "mean", "median", "mean per token", "first token the likeliest", "median rank of it",
)  # fmt: skip


def likelihoods(facts: Facts) -> Chapter | None:
    """Scores of expected texts and choices; None for a run without any."""
    if not facts.answers:
        return None
    blocks: list[Block] = []
    record: dict[str, Any] = {}
    summary: list[Prose] = []
    scores = facts.scores("expected_log_probability")
    scored = np.isfinite(scores)
    if scored.any():
        parts = _parts(facts, scored)
        record["expected"] = {name: _numbers(facts, scores, mask) for name, mask in parts.items()}
        blocks += [_lead(), _table(record["expected"]), _figure(scores, parts)]
        whole = record["expected"]["all"]
        median = minus(f"{whole['median']:.3g}")
        summary.append(
            (
                f"The expected text had a median log-probability of {median}; its first token was the likeliest one "
                f"for {percent(whole['first'])} of prompts.",
            )
        )
    if (chosen := _choices(facts)) is not None:
        record["choices"], block, told = chosen
        blocks.append(block)
        summary.append(told)
    return (
        Chapter(Section("scores", "How likely the answers were", tuple(blocks)), tuple(summary), record)
        if blocks
        else None
    )


def _parts(facts: Facts, scored: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    """All scored prompts and, where answers were judged, those of right and wrong ones."""
    found = {"all": scored}
    if facts.judged.any():
        found |= {"right": scored & facts.judged & facts.correct, "wrong": scored & facts.judged & ~facts.correct}
    return {name: mask for name, mask in found.items() if mask.any()}


def _numbers(facts: Facts, scores: NDArray[np.float64], mask: NDArray[np.bool_]) -> dict[str, float]:
    ranks, tokens = facts.scores("expected_rank")[mask], facts.scores("expected_tokens")[mask]
    return {
        "n": int(mask.sum()),
        "mean": float(scores[mask].mean()),
        "median": float(np.median(scores[mask])),
        "per_token": float((scores[mask] / tokens).mean()),
        "first": float((ranks == 1).mean()),
        "rank": float(np.median(ranks)),
    }


def _lead() -> Paragraph:
    return Paragraph(
        (
            "The log-probability of a text is the sum over its tokens of the natural logarithm of what the model "
            "gave each, given the prompt and the tokens before it: 0 is certain, −0.69 is one half, −6.9 one in a "
            "thousand. A rank of 1 means that no other token was likelier. Longer texts have lower sums.",
        )
    )


def _table(found: dict[str, dict[str, float]]) -> Table:
    rows: tuple[Cells, ...] = tuple(
        (
            name,
            Number(f"{one['n']:.0f}"),
            *(Number(minus(f"{one[key]:.3f}")) for key in ("mean", "median", "per_token")),
            Number(percent(one["first"])),
            Number(f"{one['rank']:g}"),
        )
        for name, one in found.items()
    )
    return Table(("Log-probability (natural) of the expected text",), HEAD, rows)


def minus(text: str) -> str:
    """A number with a minus sign that is one."""
    return text.replace("-", "−")


def _figure(scores: NDArray[np.float64], parts: dict[str, NDArray[np.bool_]]) -> Figure:
    series = [(name, scores[mask]) for name, mask in parts.items() if len(parts) == 1 or name != "all"]
    drawn = charts.steps(series, "log-probability of the expected text")
    ends = "; ".join(f"{name}: half lie below {minus(f'{np.median(values):.2f}')}" for name, values in series)
    return Figure(
        "log-probability",
        "Log-probability of the expected text",
        f"Cumulative shares of the log-probability of the expected text. {ends}.",
        ("How many expected texts were at most so likely, as a share of their kind.",),
        drawn.svg,
        drawn.png,
    )


def _choices(facts: Facts) -> tuple[dict[str, Any], Block, Prose] | None:
    rows = [row for row in facts.answers if len(row["choices"]) and row["has_expected"]]
    if not rows:
        return None
    share = wilson(sum(row["choice_correct"] for row in rows), len(rows))
    sizes = [len(row["choices"]) for row in rows]
    told: Prose = (
        f"Among the given choices the expected one was the likeliest for {share.right} of {share.n} prompts "
        f"({percent(share.value)}; 95 % interval {percent(share.low)} to {percent(share.high)}).",
    )
    chance = float(np.mean([1 / size for size in sizes]))
    block = Paragraph(
        (
            *told,
            f" Guessing would give {percent(chance)}. The comparison is by ",
            Code("log-probability"),
            ", summed over tokens, so that it favours short choices.",
        )
    )
    return {"n": share.n, "right": share.right, "low": share.low, "high": share.high, "chance": chance}, block, told
