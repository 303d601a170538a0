"""Choosing the next token from logits: five stages in a fixed order, and random numbers that belong to a prompt.

A leaf. The stages are temperature, top-k, top-p, softmax and a draw by the inverse of the cumulative distribution; all
in float64. Nothing is drawn in here: the caller brings one uniform number for each token, from `generator`, so that a
prompt's tokens depend on its seed and key, and not on what else is in the batch.
"""

import hashlib
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError, NumericsError

SEEDS: Final = 2**64
"""Seeds are integers from 0 to below this."""
DOMAIN: Final = b"ember.sampling/1"
"""What is hashed before seed and key; changes if the same seed and key should ever give other numbers."""

Doubles = NDArray[np.float64]


def draw(logits: NDArray[Any], temperature: float, top_k: int, top_p: float, uniform: float) -> int:
    """Token id drawn from `logits` [V] with `uniform` in [0, 1); temperature 0 takes the largest, lowest id first.

    The options have passed `check_sampling`. Single logits of -inf are never drawn. Raises NumericsError for logits
    that hold NaN or +inf, or nothing but -inf.
    """
    highest = _highest(logits)
    if temperature == 0:
        return int(np.argmax(logits))
    # the largest is taken off first: a small temperature can then overflow to -inf only, which is probability 0
    with np.errstate(over="ignore"):
        scaled = (np.asarray(logits, np.float64) - highest) / temperature
    kept = keep_top_p(keep_top_k(scaled, top_k), top_p)
    cumulative = np.cumsum(softmax(kept))
    chosen = int(np.searchsorted(cumulative, uniform, side="right"))
    return chosen if chosen < len(kept) else int(np.argmax(kept))


def keep_top_k(logits: Doubles, top_k: int) -> Doubles:
    """`logits` [V] with -inf below the k-th largest; what equals the k-th stays. 0, or V and more, changes nothing."""
    if top_k == 0 or top_k >= len(logits):
        return logits
    least = np.partition(logits, -top_k)[-top_k]
    return np.where(logits >= least, logits, -np.inf)


def keep_top_p(logits: Doubles, top_p: float) -> Doubles:
    """`logits` [V] with -inf outside the smallest set of tokens whose probability together exceeds `top_p`.

    Tokens enter the set by probability, equal ones by id. 1 changes nothing, 0 leaves the likeliest token.
    """
    if top_p == 1:
        return logits
    likeliest_first = np.argsort(-logits, kind="stable")
    mass = np.cumsum(softmax(logits)[likeliest_first])
    # where rounding keeps the whole mass from exceeding p, every token stays
    size = int(np.searchsorted(mass, top_p, side="right")) + 1
    kept = np.full_like(logits, -np.inf)
    kept[likeliest_first[:size]] = logits[likeliest_first[:size]]
    return kept


def softmax(logits: NDArray[Any]) -> Doubles:
    """Probabilities along the last axis of `logits` [..., V]; uniform where a row holds nothing but -inf."""
    given = np.asarray(logits, np.float64)
    highest = given.max(axis=-1, keepdims=True)
    # -inf minus -inf is NaN: a row without any finite value counts as equal values
    powers = np.exp(np.where(np.isneginf(highest), 0.0, given) - np.where(np.isneginf(highest), 0.0, highest))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float64)


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Raise InputError for options that no sampler can serve."""
    if not _is_real(temperature) or not 0 <= temperature < math.inf:
        raise InputError(f"temperature {temperature!r}: expected a number of at least 0 (0 takes the likeliest token)")
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0:
        raise InputError(f"top_k {top_k!r}: expected an integer of at least 0 (0 keeps every token)")
    if not _is_real(top_p) or not 0 <= top_p <= 1:
        raise InputError(f"top_p {top_p!r}: expected a number from 0 to 1 (1 keeps every token)")


def generator(seed: int, key: str) -> np.random.Generator:
    """Random numbers of one prompt: Philox keyed by (seed, key), the same in every process and on every machine.

    `generator(seed, key).random()` gives one uniform number for each token drawn. Raises InputError for a seed that is
    not an integer from 0 to 2**64 - 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < SEEDS:
        raise InputError(f"seed {seed!r}: expected an integer from 0 to {SEEDS - 1}")
    told = DOMAIN + int(seed).to_bytes(8, "little") + key.encode("utf-8", "surrogatepass")
    words = np.frombuffer(hashlib.sha256(told).digest()[:16], "<u8")
    return np.random.Generator(np.random.Philox(key=words.astype(np.uint64)))


def _is_real(value: object) -> bool:
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool)


def _highest(logits: NDArray[Any]) -> float:
    """Return the largest logit, once it is known to be finite and none is NaN."""
    with np.errstate(invalid="ignore"):
        highest = float(np.max(logits))  # NaN if any is
    if not math.isfinite(highest):
        found = "NaN" if math.isnan(highest) else "+inf" if highest > 0 else "nothing but -inf"
        raise NumericsError(f"logits hold {found}, expected finite values; no token can be drawn from them")
    return highest
