"""The records that stimuli become: plain, frozen, picklable.

A leaf of the factory. Texts are exactly what was given (or normalised as the config asks); offsets count bytes of the
prompt's UTF-8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

ExpectMode = Literal["exact", "prefix", "contains"]
Script = Literal["vocalised", "bare", "translit"]
"""Arabic with marks, Arabic without, or the transliteration of `pipelines.stimuli.translit`."""
Normalize = Literal["none", "nfc"]


@dataclass(frozen=True, slots=True)
class Target:
    """The stretch of a prompt whose tokens a `span` position captures."""

    text: str
    start: int
    """First byte in the prompt's UTF-8."""
    end: int
    """One past the last byte."""


@dataclass(frozen=True, slots=True)
class Stimulus:
    """One prompt with everything known about it before a model sees it."""

    source_index: int
    """Place in the user's own order, from 0."""
    id: str
    prompt: str
    """The text as the tokenizer gets it; never empty."""
    labels: dict[str, str]
    template: str | None
    reveals: tuple[str, ...]
    """Names of labels that can be read off the prompt's text."""
    target: Target | None
    expected: str | None
    """Expected continuation, white space included; compared by `pipelines.stimuli.expect.compare`."""
    expect_mode: ExpectMode
    original: str | None = None
    """The prompt as given, where a normaliser changed it; None where none did."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A crossing of root, pattern and template left out because no stated rule forms it (`on_unformable: drop`)."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class StimulusSet:
    """What a config's `stimuli` section gave."""

    stimuli: Sequence[Stimulus]
    dropped: tuple[Dropped, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)
    """Where they came from and what was done to them, for the manifest: source, steps with counts, normalisers."""
