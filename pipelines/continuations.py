"""The texts that a run scores, as the plan's file holds them: arrays over all samples, and how tokens are chosen.

A leaf: what workers read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.scoring import Cut
from ember.work import Continuation, Sampling
from pipelines.texts import Arrays, TextLists

Ints = NDArray[np.int32]
Starts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SampleTexts:
    """What is scored after one prompt."""

    expected: Cut | None
    choices: tuple[str, ...]
    cuts: tuple[Cut, ...]
    """Of the choices, in their order."""

    @property
    def all_cuts(self) -> tuple[Cut, ...]:
        """The expected text first, if it is scored, then the choices."""
        return ((self.expected,) if self.expected else ()) + self.cuts


NOTHING: Final = SampleTexts(None, (), ())


def _starts(lengths: Sequence[int]) -> Starts:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ContinuationTable:
    """All continuations of a run, sample after sample."""

    tokens: Ints
    starts: Starts
    """[continuations + 1] where each one's tokens start."""
    firsts: Starts
    """[samples + 1] where each sample's continuations start."""
    merged: NDArray[np.bool_]
    """[continuations]"""
    expected: NDArray[np.bool_]
    """[samples] whether a sample's first continuation is its expected text."""
    choices: Sequence[tuple[str, ...]]
    """For each sample, its choices: the continuations after the expected text."""

    @classmethod
    def of(cls, samples: Sequence[SampleTexts]) -> "ContinuationTable":
        """Join what is scored after each prompt."""
        cuts = [cut for sample in samples for cut in sample.all_cuts]
        return cls(
            np.array([token for cut in cuts for token in cut.tokens], np.int32),
            _starts([len(cut.tokens) for cut in cuts]),
            _starts([len(sample.all_cuts) for sample in samples]),
            np.array([cut.merged for cut in cuts], np.bool_),
            np.array([sample.expected is not None for sample in samples], np.bool_),
            tuple(sample.choices for sample in samples),
        )

    @classmethod
    def read(cls, arrays: Arrays) -> "ContinuationTable":
        """Take the table out of the plan's file."""
        return cls(
            arrays["scored_tokens"],
            arrays["scored_starts"],
            arrays["scored_firsts"],
            arrays["scored_merged"],
            arrays["scored_expected"],
            TextLists.read(arrays, "scored_choices"),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that `read` takes."""
        return {
            "scored_tokens": self.tokens,
            "scored_starts": self.starts,
            "scored_firsts": self.firsts,
            "scored_merged": self.merged,
            "scored_expected": self.expected,
            **TextLists.of(self.choices).arrays("scored_choices"),
        }

    def of_sample(self, sample: int) -> SampleTexts:
        """What is scored after the prompt of one sample."""
        if not len(self.merged):
            return NOTHING
        first, end = int(self.firsts[sample]), int(self.firsts[sample + 1])
        cuts = tuple(self._cut(i) for i in range(first, end))
        split = 1 if self.expected[sample] else 0
        return SampleTexts(cuts[0] if split else None, self.choices[sample], cuts[split:])

    def work(self, start: int, end: int) -> tuple[Continuation, ...]:
        """What the engine is to score for the unit of samples [start, end)."""
        return tuple(
            Continuation(sample - start, cut.tokens)
            for sample in range(start, end)
            for cut in self.of_sample(sample).all_cuts
        )

    def _cut(self, i: int) -> Cut:
        tokens = self.tokens[self.starts[i] : self.starts[i + 1]].tolist()
        return Cut(tuple(tokens), bool(self.merged[i]))


NOTHING_SCORED: Final = ContinuationTable.of(())
"""Of a run without scored texts, whatever its samples."""


@dataclass(frozen=True, slots=True)
class Choosing:
    """How the tokens of continuations are chosen, and what ends them."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "Choosing":
        """Take it from plain data."""
        return cls(**{**told, "stop": tuple(told["stop"])})

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn."""
        return self.temperature > 0

    def work(self, ids: Sequence[str]) -> Sampling | None:
        """How the engine is to draw for the stimuli of a unit; None: it takes the likeliest token."""
        if not self.samples:
            return None
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed, tuple(ids))


GREEDY: Final = Choosing()
"""The likeliest token each time, to the end or to the length asked for."""
