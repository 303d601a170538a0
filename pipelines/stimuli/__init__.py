"""Stimuli: prompts with labels, from roots and patterns, a list, or a file."""

from pathlib import Path
from typing import Protocol

from pipelines.stimuli.checks import leaks, unknown_reveals
from pipelines.stimuli.config import FileConfig, ItemsConfig, RootPatternConfig
from pipelines.stimuli.drafts import Draft, fail, finish
from pipelines.stimuli.record import Dropped, Normalize, Stimulus, StimulusSet, Target

__all__ = ["Dropped", "Stimulus", "StimulusSet", "Target", "build_section", "build_set", "build_stimuli"]

StimuliSection = RootPatternConfig | ItemsConfig | FileConfig


class _Tokenizer(Protocol):
    @property
    def normalize(self) -> Normalize: ...


class _Run(Protocol):
    """What is needed of a RunConfig, whose module stands above this one."""

    @property
    def stimuli(self) -> StimuliSection: ...
    @property
    def tokenizer(self) -> _Tokenizer: ...
    @property
    def source(self) -> Path | None: ...


def build_stimuli(config: _Run) -> list[Stimulus]:
    """Make the stimuli of a run (a RunConfig), in the user's order. See `build_section` for errors."""
    return build_set(config).stimuli


def build_set(config: _Run) -> StimulusSet:
    """Make the stimuli of a run (a RunConfig), and list what was left out. See `build_section` for errors."""
    base = config.source.parent if config.source else Path()
    return build_section(config.stimuli, base, normalize=config.tokenizer.normalize)


def build_section(config: StimuliSection, base: Path, *, normalize: Normalize = "none") -> StimulusSet:
    """Make the stimuli of a config's `stimuli` section, and list what was left out.

    `base` is the folder from which a relative `file` counts; `normalize` is the config's `tokenizer.normalize`. Raises
    ConfigError listing, with ids, every empty prompt, repeated id, lost target, malformed row and undeclared leak.
    """
    drafts, dropped = _drafts(config, base)
    stimuli = finish(drafts, config.expect_mode, normalize)
    fail(unknown_reveals(stimuli))
    found = [] if config.allow_leaks else leaks(stimuli)
    if found:
        remedy = "declare them in `reveals`, or write `allow_leaks: true`"
        fail(["stimuli: the prompts give labels away:", *found, remedy])
    return StimulusSet(stimuli, dropped)


def _drafts(config: StimuliSection, base: Path) -> tuple[list[Draft], tuple[Dropped, ...]]:
    if isinstance(config, RootPatternConfig):
        from pipelines.stimuli.crossing import cross

        return cross(config)
    from pipelines.stimuli.sources import list_items, read_file

    return (list_items(config) if isinstance(config, ItemsConfig) else read_file(config, base)), ()
