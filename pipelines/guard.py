"""The smoke guard: a model that predicts no better than chance was read or run wrongly, however its states look.

Or its prompts are none of its kind: the numbers cannot tell which, so the message names both.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ember.errors import GuardError
from pipelines.receipts import Receipt

LEAST_POSITIONS: Final = 32
"""Positions below which a mean says nothing: a few short prompts of rare words may well be hard."""
MARGIN: Final = 0.01
"""Mean negative log-likelihoods within this share of ln(vocabulary), or above, count as chance."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What the guard measured on the first unit."""

    nll: float
    """Mean negative log-likelihood, in nats, of tokens given those before them."""
    positions: int
    chance: float
    """ln(vocabulary size): what a model without knowledge has."""

    @property
    def passed(self) -> bool:
        """Whether predictions are better than chance, as far as so many positions can tell."""
        return self.positions < LEAST_POSITIONS or self.nll < (1 - MARGIN) * self.chance

    @property
    def record(self) -> dict[str, float | int | bool]:
        """The measurement for the manifest."""
        return {"nll": self.nll, "positions": self.positions, "ln_vocab": self.chance, "passed": self.passed}


def measure(receipts: Iterable[Receipt], vocab_size: int) -> Guard | None:
    """Return the guard's measurement from the receipts of the first unit; None if nothing was measured."""
    for receipt in sorted((r for r in receipts if int(r.piece[:5]) == 0), key=lambda r: r.start):
        if receipt.guard_nll is not None and receipt.guard_count:
            return Guard(receipt.guard_nll, receipt.guard_count, math.log(vocab_size))
    return None


def check(guard: Guard | None, *, allow_chance: bool) -> None:
    """Raise GuardError for predictions no better than chance, unless the config allows them."""
    if guard is None or guard.passed or allow_chance:
        return
    raise GuardError(
        f"the model predicts its prompts no better than chance: mean negative log-likelihood {guard.nll:.3f} over "
        f"{guard.positions} positions, ln(vocabulary) is {guard.chance:.3f}. Either the model is damaged, wrongly read "
        "or untrained, or the prompts are unlike anything it was trained on (as ordinary text is for "
        "builtin:sarf-nano, which knows its own templates only). Look which; if it is meant, set "
        "guard.allow_chance: true in the config"
    )
