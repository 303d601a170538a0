"""The softcap of Gemma's logits (Gemma Team 2024, arXiv 2408.00118, section 2)."""

import numpy as np

from ember.work import Floats


def softcap(scores: Floats, bound: float) -> Floats:
    """bound · tanh(scores / bound); a bound of 0 changes nothing."""
    if not bound:
        return scores
    cap = scores.dtype.type(bound)
    result: Floats = cap * np.tanh(scores / cap)
    return result
