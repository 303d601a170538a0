"""What goes into the engine and what comes out: plain records that travel to workers and back.

A leaf. A unit is a list of prompts that run together; a capture says which rows of which site and layers to keep, with
positions already resolved to token indices (see `ember.positions`).
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Floats = NDArray[np.float32]


Observe = Literal["before", "after"]
Operation = Literal["zero", "scale", "add", "replace", "interpolate", "project_out"]
ALL_STEPS: Final = -1
"""Every generated step, where a single step could stand."""


@dataclass(frozen=True, slots=True)
class CaptureWork:
    """One capture of a unit."""

    site: str
    layers: tuple[int, ...]
    """Layers in ascending order; (-1,) for the logits sites."""
    positions: tuple[tuple[int, ...], ...]
    """For each prompt of the unit, token indices from 0; none where the capture does not concern the prompt."""
    pooled: bool = False
    """True: one row a prompt, the mean over its positions; False: one row a position."""
    observe: Observe = "after"
    """Whether rows are taken before or after what acts at the capture's own site."""
    step: int | None = None
    """A generated step (0 is the first evaluation after the prompt, fed the first new token) or ALL_STEPS; positions
    are then empty, and only prompts marked in `on_steps` are captured."""
    on_steps: tuple[bool, ...] = ()
    """With `step`: for each prompt, whether its steps are captured; empty: all prompts."""

    @property
    def n_rows(self) -> int:
        """Rows that this capture yields for the prompts of the whole unit, generated steps not counted."""
        if self.pooled:
            return sum(1 for at in self.positions if at)
        return sum(map(len, self.positions))


@dataclass(frozen=True, slots=True)
class InterventionWork:
    """One operation on the tensor of a site, at known positions of some prompts.

    With x the row, v the source's row and s the strength: zero x = 0; scale x = s·x; add x + s·v; replace x = v;
    interpolate (1 - s)·x + s·v; project_out x - s·(x·u)·u with u = v / |v|. Strength 0 (for scale: 1) changes no bit.
    """

    operation: Operation
    site: str
    layers: tuple[int, ...]
    """Layers in ascending order; (-1,) for the logits sites."""
    positions: tuple[tuple[int, ...], ...]
    """For each prompt of the unit, token indices from 0; none where the operation does not concern the prompt."""
    steps: tuple[tuple[int, ...], ...] = ()
    """For each prompt, generated steps it acts on; (ALL_STEPS,) for every step; empty: none for any prompt."""
    strength: float = 1.0
    vector: Floats | None = None
    """[width], or [layers, width]: the same for every prompt and position."""
    rows: Floats | None = None
    """[layers, rows, width]: one row for each prompt and position, in the order of `positions`."""
    capture: int | None = None
    """Index of a capture of the same unit, whose rows of the same prompt serve as source: as many as `positions`, or
    one for all of them. It fires earlier: in an earlier layer or site, or at this one with observe `before`."""
    capture_layer: int | None = None
    """The capture's layer to read; None: the layer acted on."""

    @property
    def changes_nothing(self) -> bool:
        """Whether the strength makes the operation void."""
        return self.strength == (1.0 if self.operation == "scale" else 0.0) and self.operation not in VOIDLESS


VOIDLESS: Final = ("zero", "replace")
"""Operations without a strength."""


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """Attention weights to keep: of which layers, and of which query positions of each prompt."""

    layers: tuple[int, ...]
    positions: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn (see `ember.sampling`); checked by `Sampling.check` of callers before it comes here."""

    temperature: float
    top_k: int
    top_p: float
    seed: int
    keys: tuple[str, ...]
    """For each prompt, what makes its random numbers its own: the stimulus id."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Tokens to score after a prompt, teacher-forced."""

    prompt: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """How likely a continuation is after its prompt."""

    log_probabilities: tuple[float, ...]
    """Natural logarithm of each token's probability, given the prompt and the tokens before it."""
    ranks: tuple[int, ...]
    """For each token, 1 + the number of tokens with a higher logit there."""


@dataclass(frozen=True, slots=True)
class UnitWork:
    """A unit: everything the engine needs besides the model."""

    prompts: tuple[Tokens, ...]
    captures: tuple[CaptureWork, ...] = ()
    max_tokens: int = 0
    """Tokens to generate after each prompt; 0: extraction only."""
    stop_ids: tuple[int, ...] = ()
    guard_positions: int = 0
    """How many positions feed the smoke guard's mean negative log-likelihood; 0: no guard."""
    interventions: tuple[InterventionWork, ...] = ()
    """Acting in this order at each site."""
    sampling: Sampling | None = None
    """None: greedy."""
    continuations: tuple[Continuation, ...] = ()
    """Texts to score; their rows are computed beside the prompts' and are never captured."""
    top_k: int = 0
    """Most likely next tokens after each prompt to report; 0: none."""
    attention: tuple[AttentionWork, ...] = ()


@dataclass(frozen=True, slots=True)
class Produced:
    """The continuation of one prompt."""

    token_ids: tuple[int, ...]
    """New tokens only; a stopping token is the last of them."""
    stopped: str
    """`stop` (one of stop_ids was produced), `length` (max_tokens reached) or `text` (a listener ended it)."""


@dataclass(frozen=True, slots=True)
class TopTokens:
    """The most likely next tokens after one prompt, likeliest first, equal ones by id."""

    token_ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Why a prompt has no result: the first layer that left a value that is not finite."""

    layer: int
    site: str


@dataclass(slots=True)
class UnitResult:
    """What a unit gave."""

    captures: list[Floats]
    """Per capture, [layers, rows, width]; rows in prompt order, then position or step order."""
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
    scores: list[Score] = field(default_factory=list)
    """Per continuation."""
    top: list[TopTokens] = field(default_factory=list)
    """Per prompt; empty without `top_k`."""
    attention: list[list[Floats]] = field(default_factory=list)
    """Per request and row (prompt order, then position order), [layers, H, position + 1]: what each head of the query
    at that position gives to every position up to its own."""
    hook_failures: dict[int, str] = field(default_factory=dict)
    """Prompts (by index in the unit) whose experiment failed, with the message; they have no results either."""
    findings: list[tuple[int, str, Any]] = field(default_factory=list)
    """Prompt, experiment's name and what its `results()` returned."""
