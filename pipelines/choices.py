"""What a configuration's layers, positions and filters mean for each stimulus: numbers of layers, tokens and steps."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ember.errors import InputError
from ember.positions import Position, resolve, tokens_of_span
from ember.sites import NO_LAYER, SITES
from ember.work import Tokens
from pipelines.config.selectors import (
    WORDS,
    FromLabel,
    LabelledPosition,
    LayerChoice,
    LayerNumber,
    LayerRange,
    PositionChoice,
    Where,
)
from pipelines.errors import ConfigError
from pipelines.plan_checks import refusal
from pipelines.settings import closest
from pipelines.stimuli.drafts import occurrences
from pipelines.stimuli.record import Stimulus
from pipelines.tokenized import Offsets

Found = TypeVar("Found")


class Sample(Protocol):
    """A stimulus as the model reads it."""

    @property
    def stimulus(self) -> Stimulus:
        """The prompt and what is known about it."""

    @property
    def tokens(self) -> Tokens:
        """Token ids as fed."""

    @property
    def offsets(self) -> Offsets:
        """[n, 2] byte range of each token in the prompt."""

    @property
    def span_tokens(self) -> tuple[int, int] | None:
        """Half-open range of tokens that meet the target."""


def selected(where: Where, samples: Sequence[Sample], key: str) -> list[bool]:
    """For each sample, whether a filter selects it.

    Raises ConfigError for a label that no stimulus has, and for a filter that selects nothing.
    """
    if not where:
        return [True] * len(samples)
    known = sorted({name for sample in samples for name in sample.stimulus.labels})
    for name, _ in where:
        if name not in known:
            offered = ", ".join(known) or "none"
            raise ConfigError(f"{key}.where: no stimulus has a label {name!r}{closest(name, known)}; labels: {offered}")
    found = [all(sample.stimulus.labels.get(name) in values for name, values in where) for sample in samples]
    if not any(found):
        asked = "; ".join(f"{name} is {' or '.join(map(repr, values))}" for name, values in where)
        raise ConfigError(f"{key}.where: no stimulus fits ({asked}); {_values(where[0][0], samples)}")
    return found


def _values(name: str, samples: Sequence[Sample]) -> str:
    there = sorted({value for sample in samples if (value := sample.stimulus.labels.get(name)) is not None})
    more = f" and {len(there) - 8} more" if len(there) > 8 else ""
    return f"values of {name!r} are {', '.join(map(repr, there[:8]))}{more}"


def for_each(
    samples: Sequence[Sample], on: Sequence[bool], choose: Callable[[int], Found], problem: str, remedy: str
) -> dict[int, Found]:
    """Choose for the index of every sample that is `on`.

    Raises one ConfigError naming all stimuli for which that raised InputError; a reason that all share is said once.
    """
    found: dict[int, Found] = {}
    bad: list[tuple[str, str]] = []
    for i, (sample, wanted) in enumerate(zip(samples, on, strict=True)):
        if wanted:
            try:
                found[i] = choose(i)
            except InputError as error:
                bad.append((repr(sample.stimulus.id), str(error)))
    if len(bad) > 1 and len({reason for _, reason in bad}) == 1:
        raise refusal(f"{problem} ({bad[0][1]})", [name for name, _ in bad], remedy)
    if bad:
        raise refusal(problem, [f"{name} ({reason})" for name, reason in bad], remedy)
    return found


def label_of(label: FromLabel, sample: Sample) -> str:
    """Return what a stimulus's label says; raises InputError if it has none of that name."""
    value = sample.stimulus.labels.get(label.name)
    if value is None:
        raise InputError(f"it has no label {label.name!r}")
    return value


def _whole(text: str, what: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise InputError(f"{what} {text!r} is no whole number")
    return int(text)


def layers_of(choice: LayerChoice | None, site: str, n_layers: int, sample: Sample) -> tuple[int, ...]:
    """Layers in ascending order, negative ones counted from the end; raises InputError for those that do not exist."""
    if not SITES[site].per_layer:
        return (NO_LAYER,)
    if isinstance(choice, FromLabel):
        said = label_of(choice, sample)
        choice = "all" if said == "all" else (_whole(said, "layer"),)
    if choice is None or choice == "all":
        return tuple(range(n_layers))
    if isinstance(choice, LayerRange):
        first, last = _existing([_number(choice.first, sample), _number(choice.last, sample)], n_layers)
        if first > last:
            raise InputError(f"layers {first} to {last} are none")
        return tuple(range(first, last + 1))
    return tuple(sorted({*_existing([_number(layer, sample) for layer in choice], n_layers)}))


def _number(given: LayerNumber, sample: Sample) -> int:
    return _whole(label_of(given, sample), "layer") if isinstance(given, FromLabel) else given


def _existing(layers: Sequence[int], n_layers: int) -> list[int]:
    """Count layers from 0; raises InputError naming those that do not exist."""
    outside = [layer for layer in layers if not -n_layers <= layer < n_layers]
    if outside:
        raise InputError(
            f"layers {outside} do not exist; "
            f"the model has {n_layers}, counted from 0 to {n_layers - 1} (or -{n_layers} to -1)"
        )
    return [layer % n_layers for layer in layers]


def position_of(choice: PositionChoice, sample: Sample) -> Position:
    """Return the selector that a stimulus gets; raises InputError for a label that says none."""
    if isinstance(choice, Position):
        return choice
    said = label_of(choice.label, sample)
    return _numbered(choice, _whole(said, "position")) if choice.kind else _written(said)


def _numbered(choice: LabelledPosition, value: int) -> Position:
    if value < 0:
        raise InputError(f"position {value} is negative; count from 0")
    return Position(choice.kind, value)  # type: ignore[arg-type]  # one of the kinds with a number


def _written(said: str) -> Position:
    for word in WORDS:
        if said == word and not Position(word).pooled:
            return Position(word)
    index = _whole(said, "position")
    return Position("index", index) if index >= 0 else Position("from_end", -1 - index)


def tokens_at(position: Position, sample: Sample) -> tuple[int, ...]:
    """Token indices of a prompt that `position` selects; raises InputError if there is none."""
    span = _span_of(position.occurrence, sample) if position.occurrence else sample.span_tokens
    return resolve(position, len(sample.tokens), span)


def _span_of(occurrence: int, sample: Sample) -> tuple[int, int]:
    """Tokens of an occurrence, from 1, of the target's text; raises InputError if there is none."""
    stimulus = sample.stimulus
    if stimulus.target is None:
        raise InputError("it has no target")
    places = occurrences(stimulus.prompt.encode(), stimulus.target.text.encode())
    if occurrence > len(places):
        raise InputError(f"{stimulus.target.text!r} occurs {len(places)} times, not {occurrence}")
    pairs = [(start, end) for start, end in sample.offsets.tolist()]
    return tokens_of_span(pairs, *places[occurrence - 1])
