"""The ladder of claims about a (family, quantisation type, route), each a different one."""

from typing import Final

NONE: Final = "none"
RUNGS: Final[dict[str, str]] = {
    "smoke": "the model predicts real tokens far better than chance",
    "golden logits": "logits agree with a reference's",
    "activation reference": "every site of every layer agrees with a reference's, and greedy ids are the same",
    "probes": "linear probes on Ember's states find what probes on the reference's states find",
    "interventions": "changing states in Ember changes outputs as it does in the reference",
}
"""Rungs from the lowest, with what each claims."""


def height(rung: str) -> int:
    """Return how high a rung is; `none` is 0."""
    return 0 if rung == NONE else 1 + list(RUNGS).index(rung)
