"""Gemma 3 (text): norms before and after both blocks, q/k norms, windows with a RoPE base of their own, GELU gate.

Gemma Team 2025 (arXiv 2503.19786). Norm weights in GGUF files already contain the + 1 of the checkpoints. The embedding
is scaled by sqrt(D), the tied head is not. Every `sliding_window_pattern`-th layer sees all positions, the others a
window; linear RoPE scaling applies to the former only.

Shapes: T token rows, D width, H heads, K key/value heads, E head width, F FFN width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ember.card import SiteOrigin
from ember.engine.backend import Backend
from ember.engine.linear import Linear, names_of
from ember.engine.rope import Rope
from ember.engine.step import Step
from ember.gguf import GGUFFile
from ember.models.common import cache_shapes, final_norm, shared_sources, side_inputs
from ember.models.keys import KeyReader
from ember.models.rope_keys import check_rotated, linear_factor
from ember.models.softcap import softcap
from ember.models.tensors import TensorBinder
from ember.work import Floats, Tokens

__all__ = ["cache_shapes", "final_norm", "shared_sources", "side_inputs"]
ARCHITECTURE: Final = "gemma3"
LAYERS_OF_27B: Final = 62
"""The 27B model scales its scores by D / H instead of E (llama.cpp, llama-model.cpp: tells it by its layers)."""


@dataclass(frozen=True, slots=True)
class Config:
    """Hyper-parameters, from the file's `gemma3.*` keys."""

    n_layers: int
    hidden_size: int
    ffn_size: int
    n_heads: int
    n_kv_heads: int
    key_size: int
    """Width of a query or key head."""
    value_size: int
    """Width of a value head."""
    rms_eps: float
    context_length: int
    vocab_size: int
    attention_scale: float
    """Factor on q·k before the softmax."""
    softcap: float
    """Bound of the logits; 0: none."""
    windows: tuple[int, ...]
    """Per layer, positions that a query sees; 0: all."""
    rope_full: Rope
    rope_window: Rope


def read_config(file: GGUFFile, keys: KeyReader) -> Config:
    """Read every key that the family knows. Raises ModelError and UnsupportedError, naming the key."""
    keys.refuse_common()
    keys.refuse_unless("attn_logit_softcapping", (0, 0.0), "an attention softcap is not supported in the gemma3 family")
    width = keys.integer("embedding_length")
    heads = keys.integer("attention.head_count")
    n_layers = keys.integer("block_count")
    key_size = keys.integer("attention.key_length", max(1, width // heads))
    rotated = keys.integer("rope.dimension_count", key_size)
    check_rotated(file, ARCHITECTURE, rotated, key_size)
    return Config(
        n_layers=n_layers,
        hidden_size=width,
        ffn_size=keys.integer("feed_forward_length"),
        n_heads=heads,
        n_kv_heads=keys.kv_heads(heads),
        key_size=key_size,
        value_size=keys.integer("attention.value_length", key_size),
        rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
        context_length=keys.integer("context_length"),
        vocab_size=keys.vocab_size(),
        attention_scale=float((width // heads if n_layers == LAYERS_OF_27B else key_size) ** -0.5),
        softcap=keys.number("final_logit_softcapping") if keys.present("final_logit_softcapping") else 0.0,
        windows=_read_windows(keys, n_layers),
        rope_full=Rope(keys.number("rope.freq_base", 10000.0), rotated, "halves", linear_factor(file, keys)),
        rope_window=Rope(keys.number("rope.freq_base_swa", 10000.0), rotated, "halves"),
    )


def _read_windows(keys: KeyReader, n_layers: int) -> tuple[int, ...]:
    window = keys.integer("attention.sliding_window", 0, least=0)
    sliding = keys.pattern("attention.sliding_window_pattern", n_layers, default=6)
    return tuple(window if slides else 0 for slides in sliding)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Tensors of one layer."""

    attn_norm: Floats  # [D]
    attn_q: Linear  # [H*E, D]
    attn_q_norm: Floats  # [E]
    attn_k: Linear  # [K*E, D]
    attn_k_norm: Floats  # [E]
    attn_v: Linear  # [K*E, D]
    attn_output: Linear  # [D, H*E]
    post_attention_norm: Floats  # [D]
    ffn_norm: Floats  # [D]
    ffn_gate: Linear  # [F, D]
    ffn_up: Linear  # [F, D]
    ffn_down: Linear  # [D, F]
    post_ffw_norm: Floats  # [D]


@dataclass(frozen=True, slots=True)
class Weights:
    """All tensors of a model."""

    token_embd: Linear  # [V, D]
    layers: tuple[LayerWeights, ...]
    output_norm: Floats  # [D]
    output: Linear  # [V, D]
    tied: bool


def bind_weights(config: Config, binder: TensorBinder) -> Weights:
    """Take every tensor by its name and shape; the embedding serves as head where the file has none of its own."""
    vocab, width = config.vocab_size, config.hidden_size
    tied = not binder.has("output.weight")
    embedding = binder.linear("token_embd.weight", vocab, width)
    return Weights(
        token_embd=embedding,
        layers=tuple(_bind_layer(config, binder, f"blk.{index}.") for index in range(config.n_layers)),
        output_norm=binder.vector("output_norm.weight", width),
        output=embedding if tied else binder.linear("output.weight", vocab, width),
        tied=tied,
    )


def _bind_layer(config: Config, binder: TensorBinder, at: str) -> LayerWeights:
    width, ffn = config.hidden_size, config.ffn_size
    queries, keys = config.n_heads * config.key_size, config.n_kv_heads * config.key_size
    values, mixed = config.n_kv_heads * config.value_size, config.n_heads * config.value_size
    return LayerWeights(
        attn_norm=binder.vector(at + "attn_norm.weight", width),
        **binder.qkv(at, (queries, keys, values), width),
        attn_q_norm=binder.vector(at + "attn_q_norm.weight", config.key_size),
        attn_k_norm=binder.vector(at + "attn_k_norm.weight", config.key_size),
        attn_output=binder.linear(at + "attn_output.weight", width, mixed),
        post_attention_norm=binder.vector(at + "post_attention_norm.weight", width),
        ffn_norm=binder.vector(at + "ffn_norm.weight", width),
        ffn_gate=binder.linear(at + "ffn_gate.weight", ffn, width),
        ffn_up=binder.linear(at + "ffn_up.weight", ffn, width),
        ffn_down=binder.linear(at + "ffn_down.weight", width, ffn),
        post_ffw_norm=binder.vector(at + "post_ffw_norm.weight", width),
    )


def embed(be: Backend, config: Config, weights: Weights, tokens: Tokens, positions: Any) -> Floats:
    """Hidden state entering layer 0: the embedding, scaled by sqrt(D)."""
    return be.scale(be.embed(weights.token_embd, tokens), float(np.sqrt(config.hidden_size)))  # [T, D]


def layer(be: Backend, config: Config, weights: LayerWeights, index: int, x: Floats, step: Step) -> Floats:
    """One layer on token rows `x`; returns the residual stream of the rows that somebody needs."""
    eps, window = config.rms_eps, config.windows[index]
    rope = config.rope_window if window else config.rope_full
    step.tap("before_layer", x)  # [T, D]
    h = be.rms_norm(x, weights.attn_norm, eps, "attn_norm")
    x, asking = step.prune(x, h)  # [T, D] -> rows that somebody needs
    q = be.matmul(asking, weights.attn_q)  # [T, H*E]
    k, v = be.matmul(h, weights.attn_k), be.matmul(h, weights.attn_v)  # [T, K*E]
    q = be.head_norm(q, weights.attn_q_norm, eps, "attn_q_norm")
    k = be.head_norm(k, weights.attn_k_norm, eps, "attn_k_norm")
    q = be.rope(q, step.positions, rope, "rope_q")
    step.store(be.rope(k, step.key_positions, rope, "rope_k"), v)
    mixed = step.attend(q, (config.n_heads, config.n_kv_heads), config.attention_scale, window)  # [T, H*E]
    a = be.matmul(mixed, weights.attn_output)  # [T, D]
    a = be.rms_norm(a, weights.post_attention_norm, eps, "post_attention_norm")
    step.tap("after_attention", a)
    x = be.add(x, a, "attn_residual")
    h = be.rms_norm(x, weights.ffn_norm, eps, "ffn_norm")
    g = be.gelu_mul(be.matmul(h, weights.ffn_gate), be.matmul(h, weights.ffn_up))  # [T, F]
    m = be.matmul(g, weights.ffn_down)  # [T, D]
    m = be.rms_norm(m, weights.post_ffw_norm, eps, "post_ffw_norm")
    step.tap("after_mlp", m)
    x = be.add(x, m, "mlp_residual")
    step.tap("after_layer", x)
    return x


def logits(be: Backend, config: Config, scores: Floats) -> Floats:
    """What follows the head's matrix: the softcap, where the file has one."""
    return softcap(scores, config.softcap)


def origins(config: Config, weights: Weights, layer_index: int) -> dict[str, SiteOrigin]:
    """Rows of the tensor contract for one layer (see `ember.sites`)."""
    at, w = f"blk.{layer_index}.", weights.layers[layer_index]
    attention = names_of(w.attn_q, w.attn_k, w.attn_v, w.attn_output)
    attention += tuple(at + name + ".weight" for name in ("attn_q_norm", "attn_k_norm", "post_attention_norm"))
    mlp = tuple(at + name + ".weight" for name in ("ffn_gate", "ffn_up", "ffn_down", "post_ffw_norm"))
    before = ("token_embd.weight",) if layer_index == 0 else ()
    return {
        "before_layer": SiteOrigin("residual stream before the attention addition", None, before),
        "after_attention": SiteOrigin(
            "contribution after the post-attention norm, before its addition", at + "attn_norm.weight", attention
        ),
        "after_mlp": SiteOrigin(
            "contribution after the post-FFN norm, before its addition", at + "ffn_norm.weight", mlp
        ),
        "after_layer": SiteOrigin("residual stream after the MLP addition", None, attention + mlp),
    }


def head_origins(weights: Weights) -> dict[str, SiteOrigin]:
    """Rows of the tensor contract for the two logits sites."""
    head = "token_embd.weight" if weights.tied else "output.weight"
    return {
        "before_logits": SiteOrigin("after the final norm", "output_norm.weight", ()),
        "after_logits": SiteOrigin("LM head output after the softcap, if any", "output_norm.weight", (head,)),
    }
