"""How likely texts are after a prompt: which tokens are scored, and what their log-probabilities add up to.

The boundary rule, which says what the tokens of a continuation are:

    Prompt and continuation are tokenised as one text. If its ids begin with the ids of the prompt as fed, the others
    are the continuation's. If not, the tokens of the two merge where they meet: then the prompt is fed as it is, the
    continuation is tokenised by itself as a fragment (no BOS, no space put before it), and the score is flagged
    `merged`, since the model would have read the joined text as other tokens.

A score is teacher-forced: each token's probability is given the prompt and the continuation's own tokens before it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from ember.errors import InputError
from ember.units import cut_units, plan_order
from ember.work import Continuation, Score, Tokens, TopTokens, UnitResult, UnitWork

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


class Decodes(Encodes, Protocol):
    """What it needs besides where a prompt is given as token ids."""

    @property
    def add_bos(self) -> bool:
        """Whether texts are encoded with a BOS."""
        ...

    @property
    def bos_id(self) -> int | None:
        """The BOS."""
        ...

    def decode(self, ids: Sequence[int], *, whole: bool = False) -> str:
        """Return the text of token ids."""
        ...

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """Return their bytes."""
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


def text_of(tokenizer: Decodes, fed: Sequence[int]) -> str | None:
    """The text whose tokens a prompt given as ids may be; None where the ids spell no text, as half a letter."""
    ids = list(fed[1:] if tokenizer.add_bos and len(fed) and fed[0] == tokenizer.bos_id else fed)
    try:
        tokenizer.decode_bytes(ids).decode()
    except UnicodeDecodeError:
        return None
    return tokenizer.decode(ids, whole=True)


def cut_continuations(
    tokenizer: Encodes, prompt: str | None, fed: Sequence[int], texts: Sequence[str], *, parse_special: bool = False
) -> list[Cut]:
    """Apply the boundary rule to the continuations of one prompt, whose ids as fed are `fed`.

    A prompt that is no text (None) has no tokenisation together with another: its continuations are fragments. Raises
    InputError for an empty continuation and for one that cannot be encoded, naming it.
    """
    for text in texts:
        check_continuation(text)
    whole = [prompt + text for text in texts] if prompt is not None else []
    joined: Sequence[Iterable[int]] = tokenizer.encode_ids(whole, parse_special=parse_special) or [()] * len(texts)
    start = list(map(int, fed))
    return [
        _cut(tokenizer, start, list(map(int, ids)), text, parse_special=parse_special)
        for ids, text in zip(joined, texts, strict=True)
    ]


def _cut(tokenizer: Encodes, fed: list[int], joined: list[int], text: str, *, parse_special: bool) -> Cut:
    if joined[: len(fed)] == fed and len(joined) > len(fed):
        return Cut(tuple(joined[len(fed) :]), merged=False)
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


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """What is to be scored after each of some prompts."""

    prompts: tuple[Tokens, ...]
    texts: tuple[tuple[str, ...], ...]
    cuts: tuple[tuple[Cut, ...], ...]
    top_k: int

    def units(self, unit_rows: int, private_from: Sequence[int] | None) -> Iterator[tuple[list[int], UnitWork]]:
        """Units of work, each with the prompts that are in it, by number; `private_from` as of `cut_units`."""
        order = plan_order(self.prompts)
        extra = [sum(len(cut.tokens) - 1 for cut in self.cuts[i]) for i in order]
        private = None if private_from is None else [private_from[i] for i in order]
        for first, end in cut_units([self.prompts[i] for i in order], unit_rows, private, extra):
            chosen = order[first:end]
            wanted = [Continuation(place, cut.tokens) for place, i in enumerate(chosen) for cut in self.cuts[i]]
            prompts = tuple(self.prompts[i] for i in chosen)
            yield chosen, UnitWork(prompts, continuations=tuple(wanted), top_k=self.top_k)

    def answers(self, chosen: Sequence[int], result: UnitResult) -> list[list[ScoredContinuation]]:
        """What a unit gave, for each of its prompts."""
        scores = iter(result.scores)
        return [self._answers(i, scores, result.top[place] if self.top_k else None) for place, i in enumerate(chosen)]

    def _answers(self, prompt: int, scores: Iterator[Score], top: TopTokens | None) -> list[ScoredContinuation]:
        pairs = zip(self.texts[prompt], self.cuts[prompt], strict=True)
        return [scored(text, cut, next(scores), top) for text, cut in pairs]


def make_request(
    tokenizer: Decodes,
    prompts: Sequence[str] | None,
    ids: Sequence[Tokens],
    continuations: Sequence[Sequence[str]],
    *,
    context: int,
    top_k: int,
) -> ScoreRequest:
    """Cut the continuations of prompts given as texts, or only as ids, with one list of them for each prompt.

    Raises InputError naming the prompt for what cannot be scored or does not fit the context.
    """
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0:
        raise InputError(f"top_k {top_k!r}: expected an integer of at least 0")
    if isinstance(continuations, str) or len(continuations) != len(ids):
        found = "one text" if isinstance(continuations, str) else f"{len(continuations)} lists"
        raise InputError(f"continuations: found {found} for {len(ids)} prompts, expected a list of texts for each")
    cuts = []
    for index, (fed, texts) in enumerate(zip(ids, continuations, strict=True)):
        if isinstance(texts, str) or not texts:
            raise InputError(f"continuations of prompt {index}: found {texts!r}, expected a list of at least one text")
        prompt = prompts[index] if prompts is not None else text_of(tokenizer, fed.tolist())
        try:
            cuts.append(tuple(cut_continuations(tokenizer, prompt, fed.tolist(), texts)))
        except InputError as error:
            raise InputError(f"prompt {index}: {error}") from None
        longest = max(len(cut.tokens) for cut in cuts[-1])
        if len(fed) + longest > context:
            raise InputError(
                f"prompt {index} has {len(fed)} tokens and {longest} to score; the model's context is {context}; "
                "nothing is truncated: shorten one of them"
            )
    return ScoreRequest(tuple(ids), tuple(map(tuple, continuations)), tuple(cuts), top_k)


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
