"""Which tokens of a prompt a capture keeps.

A leaf. Selectors are resolved in the client, against token ids and byte offsets, so that the plan knows every row
before a worker starts. Offsets are bytes of the original UTF-8 text.
"""

from dataclasses import dataclass
from typing import Final, Literal

from ember.errors import InputError

PositionKind = Literal["last", "index", "from_end", "all", "mean", "span", "generated"]
SpanPart = Literal["first", "final", "all", "mean"]
KINDS: Final[tuple[str, ...]] = ("last", "index", "from_end", "all", "mean", "span", "generated")


@dataclass(frozen=True, slots=True)
class Position:
    """A selector."""

    kind: PositionKind = "last"
    value: int = 0
    """For `index` (from 0), `from_end` (0 is the last token) and `generated`: a step from 0, or ALL_STEPS."""
    part: SpanPart = "final"
    """For `span`: which of the span's tokens."""
    occurrence: int = 0
    """For `span`: which occurrence of the target's text, from 1; 0: the one that is the target."""

    @property
    def pooled(self) -> bool:
        """Whether the selector yields one averaged row."""
        return self.kind == "mean" or (self.kind == "span" and self.part == "mean")

    @property
    def step(self) -> int | None:
        """The generated step selected, or ALL_STEPS; None for tokens of the prompt.

        Step s, from 0, is the evaluation fed the generated token s, at position len(prompt) + s.
        """
        return self.value if self.kind == "generated" else None


def resolve(position: Position, n_tokens: int, span_tokens: tuple[int, int] | None = None) -> tuple[int, ...]:
    """Token indices that `position` selects in a prompt of `n_tokens` tokens.

    `span_tokens` is the half-open range of tokens that meet the target span, for `span`.
    Raises InputError when the position does not exist, and for `generated`, which selects none of the prompt's tokens.
    """
    if position.kind == "generated":
        raise InputError(
            "position generated selects steps after the prompt, not tokens of it; use a prompt position here"
        )
    if position.kind in ("all", "mean"):
        return tuple(range(n_tokens))
    if position.kind == "span":
        return _span(position, span_tokens)
    index = {"last": n_tokens - 1, "index": position.value, "from_end": n_tokens - 1 - position.value}[position.kind]
    if position.value < 0 or not 0 <= index < n_tokens:
        raise InputError(
            f"position {position.kind} {position.value} does not exist in a prompt of {n_tokens} tokens; "
            f"use 0 to {n_tokens - 1}"
        )
    return (index,)


def _span(position: Position, span_tokens: tuple[int, int] | None) -> tuple[int, ...]:
    if span_tokens is None or span_tokens[0] >= span_tokens[1]:
        raise InputError("position span needs a target text that occurs in the prompt; none was found")
    first, end = span_tokens
    return {"first": (first,), "final": (end - 1,)}.get(position.part, tuple(range(first, end)))


def tokens_of_span(byte_offsets: list[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """Half-open range of tokens whose bytes meet [start, end) of the text.

    Tokens without bytes of the text (BOS) have an empty offset and never meet a span. Raises InputError when none does.
    """
    meeting = [i for i, (a, b) in enumerate(byte_offsets) if a < end and b > start and b > a]
    if not meeting:
        raise InputError(f"no token covers bytes {start} to {end} of the prompt")
    return meeting[0], meeting[-1] + 1
