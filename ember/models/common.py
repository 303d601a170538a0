"""Nouns that several families have in the same form; a family that differs states its own.

A family's module takes them in by import, so that each has all its nouns and none inherits anything.
"""

from typing import Any, Protocol

from ember.card import SiteOrigin
from ember.engine.backend import Backend
from ember.engine.cache import KVShape
from ember.engine.linear import Linear
from ember.work import Floats, Tokens


class UniformConfig(Protocol):
    """What the functions here read of a configuration whose layers are all alike."""

    @property
    def n_layers(self) -> int:
        """Number of layers."""

    @property
    def n_kv_heads(self) -> int:
        """Key/value heads."""

    @property
    def key_size(self) -> int:
        """Width of a key head."""

    @property
    def value_size(self) -> int:
        """Width of a value head."""

    @property
    def rms_eps(self) -> float:
        """Epsilon of the RMS norms."""


class HeadWeights(Protocol):
    """What the functions here read of a model's weights."""

    @property
    def token_embd(self) -> Linear:
        """Embedding, [V, D]."""

    @property
    def output_norm(self) -> Floats:
        """Final norm, [D]."""

    @property
    def tied(self) -> bool:
        """Whether the embedding is the head."""


def cache_shapes(config: UniformConfig) -> tuple[KVShape | None, ...]:
    """What each layer stores per position: the same in every layer."""
    return (KVShape(config.n_kv_heads, config.key_size, config.value_size),) * config.n_layers


def shared_sources(config: Any) -> frozenset[int]:
    """Layers whose keys other layers read: none."""
    return frozenset()


def side_inputs(be: Backend, config: Any, weights: Any, tokens: Tokens, x: Floats) -> Floats | None:
    """Inputs of layers beside the residual stream: none."""
    return None


def embed(be: Backend, config: Any, weights: HeadWeights, tokens: Tokens, positions: Any) -> Floats:
    """Hidden state entering layer 0: the embedding rows as they are."""
    return be.embed(weights.token_embd, tokens)  # [T, D]


def final_norm(be: Backend, config: UniformConfig, weights: HeadWeights, x: Floats) -> Floats:
    """Hidden state that the head reads: RMS norm."""
    return be.rms_norm(x, weights.output_norm, config.rms_eps, "output_norm")  # [T, D]


def logits(be: Backend, config: Any, scores: Floats) -> Floats:
    """What follows the head's matrix: nothing."""
    return scores


def head_origins(weights: HeadWeights) -> dict[str, SiteOrigin]:
    """Rows of the tensor contract for the two logits sites."""
    head = "token_embd.weight" if weights.tied else "output.weight"
    return {
        "before_logits": SiteOrigin("after the final norm", "output_norm.weight", ()),
        "after_logits": SiteOrigin("LM head output", "output_norm.weight", (head,)),
    }
