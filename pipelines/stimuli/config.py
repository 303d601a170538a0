"""The `stimuli` section: generated from roots and patterns, listed inline, or read from a file.

Which of the three it is shows in its key: `generate`, `items` or `file`. What a section says of a file stands in
`table_config`.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from pipelines.settings import Listed, Settings, Shorthand, Word, closest, refuse
from pipelines.stimuli.common_config import CommonConfig
from pipelines.stimuli.morphology import MorphologyError, parse_pattern
from pipelines.stimuli.record import Script
from pipelines.stimuli.table_config import FileConfig
from pipelines.stimuli.templates import REVEALED_BY, parse_template
from pipelines.stimuli.translit import radicals

Labels = dict[Word, str]
Occurrence = Annotated[int, Field(ge=1)]


def _checked(check: Callable[[str], object]) -> AfterValidator:
    def run(text: str) -> str:
        try:
            check(text)
        except MorphologyError as error:
            raise refuse(str(error)) from None
        return text

    return AfterValidator(run)


Slotted = Annotated[str, _checked(parse_template)]
"""Text with slots."""


class RootConfig(Settings):
    """A root; a plain string is short for `{root: …}`."""

    root: Annotated[str, _checked(radicals)]
    """Its letters, Arabic or in transliteration: ktb, q-w-l, كتب."""
    gloss: str | None = None
    """What it means; becomes the label `gloss`."""
    labels: Labels = Field(default_factory=dict)
    """Further labels of every stimulus made from it."""


class PatternConfig(Settings):
    """A pattern; a plain string is short for `{pattern: …}`."""

    pattern: Annotated[str, _checked(parse_pattern)]
    """Transliteration with digits for radicals: 1A2i3, ma12uu3."""
    title: str | None = None
    """What the slot {pattern_name} shows; by default the pattern's key."""
    labels: Labels = Field(default_factory=dict)
    """Further labels of every stimulus made with it."""


class TemplateConfig(Settings):
    """A prompt with slots."""

    text: Annotated[str, Field(min_length=1), _checked(parse_template)]
    """Slots: {root} {pattern} {pattern_name} {surface} {bare} {translit}; a literal brace is doubled."""
    reveals: Annotated[tuple[str, ...], Listed] = ()
    """Labels that can be read off the text, such as root and pattern."""
    script: Script | None = None
    """How {root}, {pattern} and {surface} are written here; by default as the section's `script` says."""


class RootPatternConfig(CommonConfig):
    """Roots x patterns x templates: the last varies fastest."""

    generate: Literal["root_pattern"]
    """The generator."""
    roots: Annotated[tuple[Annotated[RootConfig, Shorthand("root")], ...], Field(min_length=1), Listed]
    """Roots, real or invented."""
    patterns: Annotated[dict[Word, Annotated[PatternConfig, Shorthand("pattern")]], Field(min_length=1)]
    """Patterns by name."""
    templates: Annotated[dict[Word, TemplateConfig], Field(min_length=1)]
    """Prompts by name."""
    script: Script = "vocalised"
    """Arabic with marks, Arabic without, or a transliteration."""
    target: Slotted | None = None
    """Text, with slots, whose tokens a `span` position captures."""
    occurrence: Occurrence | None = None
    """Which occurrence of the target counts, from 1, where the prompt has several."""
    expect: Slotted | None = None
    """Expected continuation, with slots."""
    on_unformable: Literal["refuse", "drop"] = "refuse"
    """What to do with a root and pattern that no stated rule joins: refuse the config, or leave them out and say so."""

    @property
    def label_names(self) -> list[str]:
        """Every label that a stimulus may carry, sorted."""
        by_roots = {name for root in self.roots for name in root.labels}
        by_patterns = {name for pattern in self.patterns.values() for name in pattern.labels}
        return sorted({"root", "pattern", "gloss"} | by_roots | by_patterns)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        roots = [root.root for root in self.roots]
        problems = [f"the root {root!r} is listed twice" for root in sorted(set(roots)) if roots.count(root) > 1]
        problems += _label_clashes(self)
        for name, template in self.templates.items():
            problems += _reveal_problems(name, template, self.label_names, allow_leaks=self.allow_leaks)
        if problems:
            raise refuse("; ".join(problems))
        return self


def _label_clashes(config: RootPatternConfig) -> list[str]:
    by_roots = {name for root in config.roots for name in root.labels}
    by_patterns = {name for pattern in config.patterns.values() for name in pattern.labels}
    taken = {"root", "pattern", "gloss"}
    return [
        f"the label {name!r} is given twice, by roots, patterns or Ember itself (root, pattern, gloss)"
        for name in sorted((by_roots & by_patterns) | (taken & (by_roots | by_patterns)))
    ]


def _reveal_problems(name: str, template: TemplateConfig, labels: list[str], *, allow_leaks: bool) -> list[str]:
    problems = [
        f"template {name!r} reveals {label!r}, which is no label here{closest(label, labels)}"
        for label in template.reveals
        if label not in labels
    ]
    if allow_leaks:
        return problems
    shown = {REVEALED_BY[slot]: slot for slot in parse_template(template.text).slots if slot in REVEALED_BY}
    return problems + [
        f"template {name!r} shows {{{slot}}}, which gives the label {label!r} away: add it to `reveals`"
        for label, slot in shown.items()
        if label not in template.reveals
    ]


class ItemConfig(Settings):
    """One stimulus; a plain string is short for `{prompt: …}`."""

    prompt: str
    """The text."""
    id: str | None = None
    """Unique; by default made from the place in the list."""
    labels: Labels = Field(default_factory=dict)
    """What is known about it."""
    template: str | None = None
    """Which template it was made with, if any."""
    reveals: Annotated[tuple[str, ...], Listed] | None = None
    """Labels that can be read off the text; by default the section's."""
    target: str | None = None
    """Text in the prompt whose tokens a `span` position captures."""
    occurrence: Occurrence | None = None
    """Which occurrence of the target counts, from 1."""
    expected: str | None = None
    """Expected continuation."""


class ItemsConfig(CommonConfig):
    """Stimuli listed in the config."""

    items: Annotated[tuple[Annotated[ItemConfig, Shorthand("prompt")], ...], Field(min_length=1), Listed]
    """The stimuli, in order."""
    reveals: Annotated[tuple[str, ...], Listed] = ()
    """Labels that can be read off every prompt."""


KINDS: Final = ("generate", "items", "file")


def _kind(given: Any) -> str | None:
    keys = given if isinstance(given, dict) else vars(given) if isinstance(given, Settings) else {}
    present = [kind for kind in KINDS if kind in keys]
    return f"<{present[0]}>" if len(present) == 1 else None


StimuliConfig = Annotated[
    Annotated[RootPatternConfig, Tag("<generate>")]
    | Annotated[ItemsConfig, Tag("<items>")]
    | Annotated[FileConfig, Tag("<file>")],
    Discriminator(
        _kind,
        custom_error_type="ember",
        custom_error_message="expected exactly one of the keys generate, items and file, in a mapping",
    ),
]
"""The `stimuli` section. Tags are in angle brackets so that messages can leave them out of a key's path."""
