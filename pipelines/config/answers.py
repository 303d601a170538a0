"""The sections about what the model says: `generate`, which lets it speak, and `score`, which judges texts."""

from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from pipelines.settings import Listed, Settings, refuse, show
from pipelines.stimuli.expect import Step
from pipelines.stimuli.templates import parse_template

EXPECTED: Final = "expected"
"""The slot that stands for a stimulus's expected text; every other one is a label."""


def _texts(given: tuple[str, ...]) -> tuple[str, ...]:
    for text in given:
        if not text:
            raise refuse("found an empty text in the list; give each at least one character")
    twice = next((text for i, text in enumerate(given) if text in given[:i]), None)
    if twice is not None:
        raise refuse(f"found {show(twice)} twice, expected different texts")
    return given


def _choices(given: tuple[str, ...]) -> tuple[str, ...]:
    for text in given:
        parse_template(text, None)
    return given


Texts = Annotated[tuple[str, ...], Listed, AfterValidator(_texts)]


class GenerateConfig(Settings):
    """Continuation of every prompt: greedy, or drawn at a temperature."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)]
    """Most new tokens a prompt; a stopping token or text ends it earlier."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 takes the likeliest token, the lowest id among equal ones; above 0, tokens are drawn."""
    top_k: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Draw from the k likeliest tokens only, those that equal the k-th included; 0: from all."""
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Draw from the smallest set of tokens whose probability exceeds p; 1: from all."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """Decides, with the stimulus's id, the random numbers of its continuation."""
    stop: Texts = ()
    """Texts that end a continuation where they first occur; they are no part of its text."""

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn."""
        return self.temperature > 0

    @model_validator(mode="after")
    def _decides_something(self) -> Self:
        idle = {"top_k": self.top_k != 0, "top_p": self.top_p != 1, "seed": self.seed != 0}
        if not self.samples and any(idle.values()):
            named = ", ".join(name for name, given in idle.items() if given)
            raise refuse(f"found {named} without a temperature: nothing is drawn, so remove it or give `temperature`")
        return self


class ScoreConfig(Settings):
    """How likely given texts are after each prompt, and how answers are compared with what was expected."""

    expected: bool = False
    """Score the expected text of every stimulus that has one."""
    choices: Annotated[Texts, AfterValidator(_choices)] = ()
    """Texts to choose from: which of them is likeliest after the prompt? A slot {name} stands for the stimulus's label
    of that name, {expected} for its expected text; a literal brace is doubled."""
    top_k: Annotated[int, Field(ge=0, le=10_000)] = 0
    """How many of the likeliest first tokens after each prompt to keep, with their log-probabilities."""
    normalize: Annotated[tuple[Step, ...], Listed] = ()
    """What is done to a continuation and to the expected text before they are compared, beside trimming white space:
    nfc, strip_diacritics, strip_tatweel, in this order."""

    @property
    def continues(self) -> bool:
        """Whether texts are scored after the prompts."""
        return self.expected or bool(self.choices)

    @property
    def measures(self) -> bool:
        """Whether anything is asked of the model."""
        return self.continues or self.top_k > 0

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not (self.measures or self.normalize):
            raise refuse("nothing to score: give `expected: true`, `choices`, `top_k` or several of them")
        if len(set(self.normalize)) != len(self.normalize):
            raise refuse(f"normalize: found {show(self.normalize)}: a step is listed twice")
        return self
