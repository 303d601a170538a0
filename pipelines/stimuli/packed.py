"""Stimuli held as a few flat arrays instead of objects, in about a quarter of the memory.

A sequence that makes a `Stimulus` whenever one is asked for. Where only prompts or ids are needed, ask for those.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

from pipelines.stimuli.record import ExpectMode, Stimulus, Target
from pipelines.texts import Texts, TextWriter, place_of

Numbers = array  # of integers; `array[int]` where a type is meant
_PLACES: Final = "q"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What many stimuli have in common."""

    template: str | None
    reveals: tuple[str, ...]
    expect_mode: ExpectMode
    labels: tuple[str, ...]
    """Names, in the order of the stimulus."""
    has_target: bool
    has_expected: bool
    has_original: bool


@dataclass(frozen=True, slots=True)
class PackedStimuli(Sequence[Stimulus]):
    """Stimuli in the order in which they were packed; equal to others that were packed from the same ones."""

    ids: Texts
    prompts: Texts
    kinds: tuple[_Kind, ...]
    values: Texts
    """Texts of labels, targets, expected and original texts, each once."""
    numbers: "Numbers[int]"
    """For each stimulus its source_index, its kind and what its kind has, texts by their place in `values`."""
    starts: "Numbers[int]"
    """[stimuli + 1] where the numbers of each stimulus start."""

    def __len__(self) -> int:
        """Count the stimuli."""
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Stimulus: ...
    @overload
    def __getitem__(self, at: slice) -> list[Stimulus]: ...
    def __getitem__(self, at: int | slice) -> Stimulus | list[Stimulus]:
        """Make a stimulus, or a list of them."""
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        at = place_of(at, len(self))
        return self._made(self.ids[at], self.prompts[at], self.numbers[self.starts[at] : self.starts[at + 1]])

    def __iter__(self) -> Iterator[Stimulus]:
        """Make one stimulus after another."""
        start = 0
        for name, prompt, end in zip(self.ids, self.prompts, self.starts[1:], strict=True):
            yield self._made(name, prompt, self.numbers[start:end])
            start = end

    @property
    def label_names(self) -> list[str]:
        """Names of the labels that any stimulus has, sorted."""
        return sorted({name for kind in self.kinds for name in kind.labels})

    def lacking(self, label: str) -> list[str]:
        """Return the ids of the stimuli without a label."""
        without = {at for at, kind in enumerate(self.kinds) if label not in kind.labels}
        if not without:
            return []
        return [self.ids[at] for at, start in enumerate(self.starts[:-1]) if self.numbers[start + 1] in without]

    @property
    def source_indices(self) -> "Numbers[int]":
        """The place of each stimulus in the user's own order."""
        return array("i", (self.numbers[start] for start in self.starts[:-1]))

    def _made(self, name: str, prompt: str, numbers: "Numbers[int]") -> Stimulus:
        kind = self.kinds[numbers[1]]
        target, expected, original, at = None, None, None, 2
        if kind.has_target:
            target, at = Target(self._value(numbers[2]), numbers[3], numbers[4]), 5
        if kind.has_expected:
            expected, at = self._value(numbers[at]), at + 1
        if kind.has_original:
            original, at = self._value(numbers[at]), at + 1
        labels = dict(zip(kind.labels, map(self._value, numbers[at:]), strict=True)) if kind.labels else {}
        return Stimulus(
            numbers[0],
            name,
            prompt,
            labels,
            kind.template,
            kind.reveals,
            target,
            expected,
            kind.expect_mode,
            original,
        )

    def _value(self, place: int) -> str:
        # not by values[place], which takes thrice as long
        starts = self.values.starts
        return str(self.values.joined[starts[place] : starts[place + 1]], "utf-8")


class Packer:
    """Packs stimuli one by one."""

    def __init__(self) -> None:
        self._ids, self._prompts = TextWriter(), TextWriter()
        self._kinds: dict[_Kind, int] = {}
        self._values: dict[str, int] = {}
        self._numbers, self._starts = array("i"), array(_PLACES, [0])

    def add(self, stimulus: Stimulus) -> None:
        """Add a stimulus behind the others."""
        target, expected, original = stimulus.target, stimulus.expected, stimulus.original
        kind = _Kind(
            stimulus.template,
            stimulus.reveals,
            stimulus.expect_mode,
            tuple(stimulus.labels),
            target is not None,
            expected is not None,
            original is not None,
        )
        self._ids.add(stimulus.id)
        self._prompts.add(stimulus.prompt)
        self._numbers.extend((stimulus.source_index, self._kinds.setdefault(kind, len(self._kinds))))
        if target is not None:
            self._numbers.extend((self._place_of(target.text), target.start, target.end))
        if expected is not None:
            self._numbers.append(self._place_of(expected))
        if original is not None:
            self._numbers.append(self._place_of(original))
        self._numbers.extend(map(self._place_of, stimulus.labels.values()))
        self._starts.append(len(self._numbers))

    def done(self) -> PackedStimuli:
        """Return what was packed."""
        values = TextWriter()
        for value in self._values:
            values.add(value)
        return PackedStimuli(
            self._ids.done(), self._prompts.done(), tuple(self._kinds), values.done(), self._numbers, self._starts
        )

    def _place_of(self, text: str) -> int:
        return self._values.setdefault(text, len(self._values))


def pack(stimuli: Iterable[Stimulus]) -> PackedStimuli:
    """Pack stimuli, in their order; those that are packed stay as they are."""
    if isinstance(stimuli, PackedStimuli):
        return stimuli
    packer = Packer()
    for stimulus in stimuli:
        packer.add(stimulus)
    return packer.done()
