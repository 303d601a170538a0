"""Stimuli: prompts with labels, from roots and patterns, a list, or a file."""

from pathlib import Path
from typing import Any, Protocol

from pipelines.stimuli.checks import leaks, unknown_reveals
from pipelines.stimuli.config import ItemsConfig, RootPatternConfig
from pipelines.stimuli.drafts import Draft, fail, finish
from pipelines.stimuli.normalisers import changes
from pipelines.stimuli.packed import pack
from pipelines.stimuli.record import Dropped, Normalize, Stimulus, StimulusSet, Target
from pipelines.stimuli.selecting import admitted, chosen
from pipelines.stimuli.table_config import FileConfig

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
    return list(build_set(config).stimuli)


def build_set(config: _Run) -> StimulusSet:
    """Make the stimuli of a run (a RunConfig), and list what was left out. See `build_section` for errors."""
    base = config.source.parent if config.source else Path()
    return build_section(config.stimuli, base, normalize=config.tokenizer.normalize)


def build_section(config: StimuliSection, base: Path, *, normalize: Normalize = "none") -> StimulusSet:
    """Make the stimuli of a config's `stimuli` section, list what was left out, and record what was done.

    `base` is the folder from which a relative `file` counts; `normalize` is the config's `tokenizer.normalize`, which
    comes after the section's own normalisers. Raises ConfigError listing, with ids, every empty prompt, repeated id,
    lost target, malformed row and undeclared leak.
    """
    drafts, dropped, source = _drafts(config, base)
    steps = (*(config.normalize or ()), *(("nfc",) if normalize == "nfc" else ()))
    drafts, taken = admitted(drafts, config.select)
    stimuli = finish(drafts, config.expect_mode, steps)
    record: dict[str, Any] = {"source": source, "normalize": changes((draft.prompt for draft in drafts), steps)}
    del drafts
    kept, further = chosen(stimuli, config.select)
    stimuli = pack(kept)
    record["steps"] = [*taken, *further]
    fail(unknown_reveals(stimuli))
    found = [] if config.allow_leaks else leaks(stimuli)
    if found:
        remedy = "declare them in `reveals`, or write `allow_leaks: true`"
        fail(["stimuli: the prompts give labels away:", *found, remedy])
    return StimulusSet(stimuli, dropped, record)


def _drafts(config: StimuliSection, base: Path) -> tuple[list[Draft], tuple[Dropped, ...], dict[str, Any]]:
    if isinstance(config, RootPatternConfig):
        from pipelines.stimuli.crossing import cross

        drafts, dropped = cross(config)
        return drafts, dropped, {"kind": config.generate, "without_form": len(dropped)}
    from pipelines.stimuli.sources import list_items, read_file

    if isinstance(config, ItemsConfig):
        return list_items(config), (), {"kind": "items"}
    drafts, source = read_file(config, base)
    return drafts, (), source
