"""The `root_pattern` generator: every root in every pattern in every template.

Order is the config's own: roots outermost, then patterns, then templates. An id is `root.pattern.template`.
"""

from dataclasses import dataclass

from pipelines.stimuli.config import PatternConfig, RootConfig, RootPatternConfig, TemplateConfig
from pipelines.stimuli.drafts import Draft, fail
from pipelines.stimuli.morphology import Form, MorphologyError, apply
from pipelines.stimuli.record import Dropped, Script
from pipelines.stimuli.templates import SLOTS, Template, fill, parse_template, slot_values, target_places


@dataclass(frozen=True, slots=True)
class _Cast:
    """A template ready to be filled."""

    name: str
    config: TemplateConfig
    text: Template
    script: Script


def cross(config: RootPatternConfig) -> tuple[list[Draft], tuple[Dropped, ...]]:
    """Make all drafts, and list the crossings left out because no stated rule forms them.

    Raises ConfigError naming each root and pattern without a form, unless the config says to drop them.
    """
    casts = [_cast(name, template, config) for name, template in config.templates.items()]
    drafts: list[Draft] = []
    dropped: list[Dropped] = []
    unformed: list[str] = []
    for root in config.roots:
        for name, pattern in config.patterns.items():
            stem = f"{root.root}.{name}"
            try:
                form = apply(root.root, pattern.pattern)
                drafts += [_draft(config, root, name, pattern, form, cast) for cast in casts]
            except MorphologyError as error:
                unformed.append(f"stimuli: {stem}: {error}")
                dropped += [Dropped(f"{stem}.{cast.name}", str(error)) for cast in casts]
    if config.on_unformable == "refuse" and unformed:
        fail([*unformed, "take them out, or write `on_unformable: drop` to leave them out and have them listed"])
    if not drafts:
        fail(["stimuli: no root has a form in any pattern, so nothing is left", *unformed])
    return drafts, tuple(dropped)


def _cast(name: str, template: TemplateConfig, config: RootPatternConfig) -> _Cast:
    return _Cast(name, template, parse_template(template.text), template.script or config.script)


def _draft(
    config: RootPatternConfig, root: RootConfig, name: str, pattern: PatternConfig, form: Form, cast: _Cast
) -> Draft:
    values = slot_values(form, pattern.title or name, cast.script)
    filled = fill(cast.text, values)
    target, places = None, None
    if config.target is not None:
        target, places = target_places(config.target, SLOTS, filled, values)
    labels = {"root": root.root, "pattern": name}
    if root.gloss is not None:
        labels["gloss"] = root.gloss
    return Draft(
        where="stimuli",
        id=f"{root.root}.{name}.{cast.name}",
        prompt=filled.text,
        labels=labels | root.labels | pattern.labels,
        template=cast.name,
        reveals=cast.config.reveals,
        target=target,
        places=places,
        occurrence=config.occurrence,
        expected=None if config.expect is None else fill(parse_template(config.expect), values).text,
    )
