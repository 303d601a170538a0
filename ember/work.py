"""What goes into the engine and what comes out: plain records that travel to workers and back.

A leaf. A unit is a list of prompts that run together; a capture says which rows of which site and layers to keep, with
positions already resolved to token indices (see `ember.positions`).
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CaptureWork:
    """One capture of a unit."""

    site: str
    layers: tuple[int, ...]
    """Layers in ascending order; (-1,) for the logits sites."""
    positions: tuple[tuple[int, ...], ...]
    """For each prompt of the unit, token indices from 0."""
    pooled: bool = False
    """True: one row a prompt, the mean over its positions; False: one row a position."""

    @property
    def n_rows(self) -> int:
        """Rows that this capture yields for the whole unit."""
        return len(self.positions) if self.pooled else sum(map(len, self.positions))


@dataclass(frozen=True, slots=True)
class UnitWork:
    """A unit: everything the engine needs besides the model."""

    prompts: tuple[Tokens, ...]
    captures: tuple[CaptureWork, ...] = ()
    max_tokens: int = 0
    """Tokens to generate greedily after each prompt; 0: extraction only."""
    stop_ids: tuple[int, ...] = ()
    guard_positions: int = 0
    """How many positions feed the smoke guard's mean negative log-likelihood; 0: no guard."""


@dataclass(frozen=True, slots=True)
class Produced:
    """The greedy continuation of one prompt."""

    token_ids: tuple[int, ...]
    """New tokens only; a stopping token is the last of them."""
    stopped: str
    """`stop` (one of stop_ids was produced) or `length` (max_tokens reached)."""


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Why a prompt has no result: the first layer that left a value that is not finite."""

    layer: int
    site: str


@dataclass(slots=True)
class UnitResult:
    """What a unit gave."""

    captures: list[Floats]
    """Per capture, [layers, rows, width]; rows in prompt order, then position order."""
    produced: list[Produced]
    """Per prompt; empty when nothing was to be generated."""
    rows: int
    """Token rows before sharing."""
    rows_computed: int
    """Token rows after sharing prefixes."""
    guard_nll: float | None = None
    """Mean negative log-likelihood in nats over the guard's positions; None without guard."""
    guard_count: int = 0
    failures: dict[int, NonFinite] = field(default_factory=dict)
    """Prompts (by index in the unit) whose values are not finite; their rows and continuations mean nothing."""
