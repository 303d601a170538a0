"""What stops a plan, and what it only mentions: checks over all stimuli, so that one message names every offender."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ember.card import ModelCard
from pipelines.errors import ConfigError
from pipelines.tokenized import Tokenized

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer

SHOWN: Final = 5
"""Offenders that a refusal names; the others are counted."""


def refusal(problem: str, offenders: Sequence[str], remedy: str) -> ConfigError:
    """Build one error about many stimuli: the first few by name, the others by number."""
    shown = ", ".join(offenders[:SHOWN])
    more = f" and {len(offenders) - SHOWN} more" if len(offenders) > SHOWN else ""
    plural = "stimulus" if len(offenders) == 1 else "stimuli"
    return ConfigError(f"{len(offenders)} {plural} {problem}: {shown}{more}; {remedy}")


def refuse_unfit(samples: Sequence[Tokenized], card: ModelCard, max_tokens: int) -> None:
    """Raise ConfigError if prompts have no tokens, or do not fit the context with `max_tokens` new ones."""
    empty = [repr(s.id) for s in samples if len(s.tokens) == 0]
    if empty:
        raise refusal("without a single token", empty, "give each a prompt that is not empty")
    room = card.context_length
    long = [
        f"{s.id!r} ({len(s.tokens)} tokens{f' + {max_tokens} to generate' if max_tokens else ''})"
        for s in samples
        if len(s.tokens) + max_tokens > room
    ]
    if long:
        raise refusal(
            f"over the model's context of {room} tokens",
            long,
            "shorten them or generate.max_tokens: nothing is cut off silently",
        )


def notes_on(samples: Sequence[Tokenized], tokenizer: "Tokenizer", *, parse_special: bool) -> list[str]:
    """Say what deserves a look: one line per matter."""
    notes = []
    spelt = {} if parse_special else {s.id: found for s in samples if (found := tokenizer.control_spellings(s.prompt))}
    if spelt:
        first, found = next(iter(spelt.items()))
        notes.append(
            f"{len(spelt)} stimuli spell control tokens, which are read as plain text ({first!r}: {', '.join(found)}); "
            "tokenizer.parse_special: true reads them as tokens"
        )
    if len(samples) > 1 and len({int(s.tokens[-1]) for s in samples}) == 1:
        last = tokenizer.decode([int(samples[0].tokens[-1])])
        notes.append(f"all prompts end in the same token {last!r}: position `last` never is the word itself")
    distinct = len({s.tokens.tobytes() for s in samples})
    if distinct < len(samples):
        notes.append(f"{len(samples) - distinct} stimuli have the token ids of another one")
    return notes
