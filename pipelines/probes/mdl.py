"""Online code length (Voita and Titov 2020): bits to send the labels to somebody who has the states.

Labels are sent block by block. Each block is coded by a probe trained on the blocks before it; the first is coded
uniformly. A label that is easy to read takes few bits early on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from pipelines.probes.design import Design, Rows, scores
from pipelines.probes.lbfgs import Doubles
from pipelines.probes.logistic import fit_logistic
from pipelines.probes.targets import Codes

SHARES: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Ends of the blocks as shares of the rows, as in the paper."""


def blocks(rows: int, classes: int) -> list[int]:
    """Ends of the blocks: the first has at least twice as many rows as there are classes."""
    least = min(rows, max(2 * classes, 8))
    return sorted({least, *(end for share in SHARES if (end := round(share * rows)) > least), rows})


@dataclass(frozen=True, slots=True)
class Sending:
    """How rows are sent."""

    order: Rows
    """All rows, in the order of sending."""
    groups: Codes
    """[rows] what is sent as a whole, one after the other."""


def code_lengths(
    design: Design, rows: Codes, targets: Sequence[Codes], classes: int, sending: Sending, strengths: Sequence[float]
) -> list[float]:
    """Bits for each target.

    All strengths are kept up. A block is coded with the one that would have been best on the blocks before it, which
    the receiver knows too.
    """
    order = sending.order
    ends = blocks(len(order), classes)
    bits = [ends[0] * float(np.log2(classes)) for _ in targets]
    past = np.zeros((len(targets), len(strengths)))
    for start, end in pairwise(ends):
        known, sent = order[:start], order[start:end]
        training = design.training(rows[known])
        x, seen = design.x[rows[sent]], len(np.unique(sending.groups[known]))
        best = past.argmin(axis=1)
        # nothing is learnt from the last block: of the other strengths nobody asks
        kept = sorted(set(best.tolist())) if end == len(order) else list(range(len(strengths)))
        fits = fit_logistic(training, [codes[known] for codes in targets], classes, [strengths[i] for i in kept])
        for t, (codes, models) in enumerate(zip(targets, fits, strict=True)):
            block = np.array([_bits(told, codes[sent], seen) for told in scores(x, models)])
            bits[t] += float(block[kept.index(best[t])])
            past[t, kept] += block
    return bits


def _bits(told: Doubles, codes: Codes, seen: int) -> float:
    """Code length of a block, with a share of 1 / (seen + 1) of the uniform code mixed in.

    A class may not have occurred yet, and after few groups a probe must not be trusted blindly with the next one.
    """
    told = told - told.max(axis=1, keepdims=True)
    shares = np.exp(told)
    shares /= shares.sum(axis=1, keepdims=True)
    mixed = (seen * shares[np.arange(len(codes)), codes] + 1 / shares.shape[1]) / (seen + 1)
    return float(-np.log2(mixed).sum())
