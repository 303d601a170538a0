"""How likely texts are after a prompt: which tokens are scored, and what their log-probabilities add up to.

A leaf. The boundary rule, which says what the tokens of a continuation are:

    Prompt and continuation are tokenised as one text. If its ids begin with the ids of the prompt as fed, the others
    are the continuation's. If not, the tokens of the two merge where they meet: then the prompt is fed as it is, the
    continuation is tokenised by itself as a fragment (no BOS, no space put before it), and the score is flagged
    `merged`, since the model would have read the joined text as other tokens.

A score is teacher-forced: each token's probability is given the prompt and the continuation's own tokens before it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from ember.errors import InputError
from ember.work import Score, TopTokens

RULE: Final = "joint tokens if they begin with the prompt's, else a fragment, flagged merged"
"""The boundary rule as manifests quote it; changes when the rule does."""

Per = Literal["text", "token", "byte", "character"]
"""What a log-probability is the mean over; `text`: the sum itself."""


class Encodes(Protocol):
    """What the boundary rule needs of a tokenizer (`ember.tokenizer.Tokenizer`)."""

    def encode_ids(self, texts: Sequence[str], *, parse_special: bool = False) -> Sequence[Iterable[int]]:
        """Return the ids of texts, as prompts are encoded."""
        ...

    def encode_fragment(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Return the ids of a stretch from inside a text."""
        ...


@dataclass(frozen=True, slots=True)
class Cut:
    """The tokens of a continuation, by the boundary rule."""

    tokens: tuple[int, ...]
    merged: bool
    """The joined text is tokenised otherwise."""


@dataclass(frozen=True, slots=True)
class ScoredContinuation:
    """A continuation and how likely it is after its prompt."""

    text: str
    token_ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    """Natural logarithm of each token's probability, given the prompt and the tokens before it."""
    ranks: tuple[int, ...]
    """For each token, 1 + the number of tokens that were likelier there."""
    merged: bool
    """The prompt's last token and the continuation's first would be other tokens in the joined text."""
    top: TopTokens | None = None
    """The likeliest first tokens after the prompt, if they were asked for."""

    @property
    def log_probability(self) -> float:
        """Natural logarithm of the probability of the whole continuation."""
        return total(self.log_probabilities)

    @property
    def n_bytes(self) -> int:
        """Bytes of its UTF-8."""
        return len(self.text.encode())

    @property
    def n_characters(self) -> int:
        """Code points; marks count."""
        return len(self.text)

    @property
    def rank(self) -> int:
        """Rank of its first token."""
        return self.ranks[0]

    def per(self, unit: Per) -> float:
        """Log-probability of the `text`, or its mean per `token`, `byte` or `character`."""
        counts = {"text": 1, "token": len(self.token_ids), "byte": self.n_bytes, "character": self.n_characters}
        if unit not in counts:
            raise InputError(f"per {unit!r}: expected one of {', '.join(counts)}")
        return self.log_probability / counts[unit]


def cut_continuations(
    tokenizer: Encodes, prompt: str, fed: Sequence[int], texts: Sequence[str], *, parse_special: bool = False
) -> list[Cut]:
    """Apply the boundary rule to the continuations of one prompt, whose ids as fed are `fed`.

    Raises InputError for an empty continuation and for one that cannot be encoded, naming it.
    """
    for text in texts:
        check_continuation(text)
    joined = tokenizer.encode_ids([prompt + text for text in texts], parse_special=parse_special)
    return [
        _cut(tokenizer, list(fed), list(ids), text, parse_special=parse_special)
        for ids, text in zip(joined, texts, strict=True)
    ]


def _cut(tokenizer: Encodes, fed: list[int], joined: list[int], text: str, *, parse_special: bool) -> Cut:
    n = len(fed)
    if joined[:n] == fed and len(joined) > n:
        return Cut(tuple(map(int, joined[n:])), merged=False)
    return Cut(tuple(tokenizer.encode_fragment(text, parse_special=parse_special)), merged=True)


def check_continuation(text: object) -> None:
    """Raise InputError unless `text` is a text that can be scored."""
    if not isinstance(text, str):
        raise InputError(f"continuation: found {type(text).__name__}, expected a text (str)")
    if not text:
        raise InputError("an empty continuation: it has no token to score; give it a text")


def scored(text: str, cut: Cut, score: Score, top: TopTokens | None = None) -> ScoredContinuation:
    """Join a continuation with what the engine said of its tokens."""
    return ScoredContinuation(text, cut.tokens, score.log_probabilities, score.ranks, cut.merged, top)


def total(log_probabilities: Sequence[float]) -> float:
    """Sum of log-probabilities, rounded once: the same on every machine, whatever their order."""
    return math.fsum(log_probabilities)


def likeliest(scores: Sequence[ScoredContinuation], per: Per = "text") -> int:
    """Index of the likeliest of a set of continuations, by sum or by mean; of equal ones, the first."""
    return first_largest([score.per(per) for score in scores])


def first_largest(values: Sequence[float]) -> int:
    """Index of the largest value; of equal ones, the first. Raises InputError where there is none."""
    if not values:
        raise InputError("no continuations to choose from: give at least one")
    return max(range(len(values)), key=lambda i: (values[i], -i))
