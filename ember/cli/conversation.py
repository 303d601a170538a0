"""Asking a model, once or again and again: how to continue, the text as it comes, and what was said before."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ember.chat import ChatTemplate, Message, encode_chat, read_template
from ember.errors import InputError
from ember.generate import check_stop
from ember.hooks import Experiment
from ember.sampling import check_sampling

if TYPE_CHECKING:
    from ember.model import Model

OnText = Callable[[str], None]


class StoppedAnswerError(Exception):
    """Raised by a listener to end an answer; what has been said stays said."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How to continue; the options of `ember generate`."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    seed: int | None
    stop: tuple[str, ...]

    def check(self) -> None:
        """Raise InputError for what cannot be served, before a model is opened for it."""
        check_sampling(self.temperature, self.top_k, self.top_p)
        check_stop(self.stop)


def continuation(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a continuation to a command, which takes them as one argument, `choices`."""

    @functools.wraps(command)
    def called(**given: Any) -> Any:
        chosen = Choices(**{name: given.pop(name) for name in Choices.__slots__})
        return command(choices=chosen, **given)

    options = [
        click.option("--max-tokens", type=click.IntRange(min=1), default=32, show_default=True),
        click.option(
            "--temperature", type=float, default=0.0, show_default=True, help="0 takes the likeliest token, always."
        ),
        click.option("--top-k", type=int, default=0, help="Draw among the K likeliest only; 0 (default): among all."),
        click.option(
            "--top-p", type=float, default=1.0, help="Draw among the fewest that exceed this mass; 1 (default): all."
        ),
        click.option(
            "--seed", type=click.IntRange(0, 2**64 - 1), default=None, help="Of the draws; default: a new one, told."
        ),
        click.option("--stop", multiple=True, metavar="TEXT", help="End before this text. May be repeated."),
    ]
    for option in reversed(options):
        called = option(called)
    return called


@dataclass(frozen=True, slots=True)
class Answer:
    """One continuation, complete or ended by Ctrl-C."""

    prompt: str
    """What the model read: the text given, or the rendered conversation."""
    token_ids: list[int]
    text: str
    stopped: str
    """`stop`, `length` or `text` as in `ember.Generation`; `interrupted` where the listener ended it."""
    seed: int | None
    findings: list[tuple[str, Any]]
    seed_is_new: bool = False
    """Whether the seed was drawn and has to be told, for the same answer to be had again."""

    def record(self) -> dict[str, Any]:
        """Return the answer for machines."""
        return {
            "prompt": self.prompt,
            "token_ids": self.token_ids,
            "text": self.text,
            "stopped": self.stopped,
            "seed": self.seed,
            "findings": [{"experiment": name, "results": found} for name, found in self.findings],
        }


@dataclass(slots=True)
class Conversation:
    """A model with what it was told so far; without a template every text stands alone."""

    model: "Model"
    choices: Choices
    template: ChatTemplate | None = None
    system: str | None = None
    """Comes before everything else that is said."""
    said: list[Message] = field(default_factory=list)

    def ask(self, text: str, on_text: OnText, experiments: Sequence[Callable[[], Experiment]] = ()) -> Answer:
        """Continue after `text`; `on_text` gets what became complete, and may raise StoppedAnswerError.

        Where the answer fails, `text` has not been said.
        """
        prompt, given = self._given(text)
        pieces: list[str] = []
        token_ids: list[int] = []

        def heard(token: int, piece: str) -> None:
            if token >= 0:
                token_ids.append(token)
            pieces.append(piece)
            on_text(piece)

        try:
            made = self.model.generate(**given, **self._options(), experiments=experiments, on_token=heard)
            new = made.seed is not None and self.choices.seed is None
            answer = Answer(prompt, made.token_ids, made.text, made.stopped, made.seed, made.findings, seed_is_new=new)
        except StoppedAnswerError:
            answer = Answer(prompt, token_ids, "".join(pieces), "interrupted", self.choices.seed, [])
        self._remember(text, answer.text)
        return answer

    def forget(self) -> None:
        """Begin anew; the system message stays."""
        self.said.clear()

    def _given(self, text: str) -> tuple[str, dict[str, Any]]:
        """Return what the model reads, as text and as an argument of `Model.generate`."""
        if self.template is None:
            return text, {"prompt": text}
        first: list[Message] = [{"role": "system", "content": self.system}] if self.system is not None else []
        rendered = self.template.render([*first, *self.said, {"role": "user", "content": text}])
        return rendered, {"tokens": encode_chat(self.model.tokenizer, rendered)}

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self.choices, name) for name in Choices.__slots__}

    def _remember(self, text: str, answer: str) -> None:
        if self.template is not None:
            self.said += [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]


def template_of(model: "Model", *, chat: bool, system: str | None) -> ChatTemplate | None:
    """Return the model's chat template if it is asked for. Raises InputError for a system message without one."""
    if system is not None and not chat:
        raise InputError("--system is part of a conversation: give --chat too, which uses the model's chat template")
    return read_template(model.file, model.tokenizer) if chat else None


def spelt_out(model: "Model", text: str) -> str | None:
    """Say that a text to be put in a conversation spells out control tokens; None where it does not."""
    found = model.tokenizer.control_spellings(text)
    if not found:
        return None
    return f"{', '.join(map(repr, found))}, spelt out in the text, will be read as the control tokens of a conversation"
