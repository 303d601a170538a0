"""Stimuli: prompts with labels, from roots and patterns, a list, or a file."""

from pathlib import Path

from pipelines.stimuli.checks import leaks
from pipelines.stimuli.config import FileConfig, ItemsConfig, RootPatternConfig
from pipelines.stimuli.drafts import Draft, fail, finish
from pipelines.stimuli.record import Dropped, Normalize, Stimulus, StimulusSet, Target

__all__ = ["Dropped", "Stimulus", "StimulusSet", "Target", "build_set", "build_stimuli"]

StimuliSection = RootPatternConfig | ItemsConfig | FileConfig


def build_stimuli(config: StimuliSection, base: Path, *, normalize: Normalize = "none") -> list[Stimulus]:
    """Make the stimuli of a config's section, in the user's order. See `build_set`."""
    return build_set(config, base, normalize=normalize).stimuli


def build_set(config: StimuliSection, base: Path, *, normalize: Normalize = "none") -> StimulusSet:
    """Make the stimuli of a config's section, and list what was left out.

    `base` is the folder from which a relative `file` counts; `normalize` is the config's `tokenizer.normalize`. Raises
    ConfigError listing, with ids, every empty prompt, repeated id, lost target, malformed row and undeclared leak.
    """
    drafts, dropped = _drafts(config, base)
    stimuli = finish(drafts, config.expect_mode, normalize)
    found = [] if config.allow_leaks else leaks(stimuli)
    if found:
        fail(
            [
                "stimuli: the prompts give labels away:",
                *found,
                "declare them in `reveals`, or write `allow_leaks: true`",
            ]
        )
    return StimulusSet(stimuli, dropped)


def _drafts(config: StimuliSection, base: Path) -> tuple[list[Draft], tuple[Dropped, ...]]:
    if isinstance(config, RootPatternConfig):
        from pipelines.stimuli.crossing import cross

        return cross(config)
    from pipelines.stimuli.sources import list_items, read_file

    return (list_items(config) if isinstance(config, ItemsConfig) else read_file(config, base)), ()
