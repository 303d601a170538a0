"""Qwen3 (dense): Llama's block with an RMS norm on every query and key head, and RoPE on split halves.

Yang et al. 2025 (arXiv 2505.09388). The norm stands before RoPE; its weight [E] is shared by all heads. Heads are as
wide as `attention.key_length` says, which is not D / H in most of these models.

Shapes: T token rows, D width, H heads, K key/value heads, E head width, F FFN width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Final

from ember.card import SiteOrigin
from ember.engine.backend import Backend
from ember.engine.linear import Linear, names_of
from ember.engine.step import Step
from ember.gguf import GGUFFile
from ember.models.common import (
    cache_shapes,
    embed,
    final_norm,
    head_origins,
    logits,
    shared_sources,
    side_inputs,
)
from ember.models.keys import KeyReader
from ember.models.plain import PlainConfig, PlainWeights, bind_plain_weights, read_plain_config
from ember.models.rope_keys import FACTORS
from ember.models.tensors import TensorBinder
from ember.work import Floats

__all__ = ["cache_shapes", "embed", "final_norm", "head_origins", "logits", "shared_sources", "side_inputs"]
ARCHITECTURE: Final = "qwen3"


Config = PlainConfig


def read_config(file: GGUFFile, keys: KeyReader) -> Config:
    """Read every key that the family knows. Raises ModelError and UnsupportedError, naming the key."""
    return read_plain_config(file, keys, "halves")


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
    ffn_norm: Floats  # [D]
    ffn_gate: Linear  # [F, D]
    ffn_up: Linear  # [F, D]
    ffn_down: Linear  # [D, F]


Weights = PlainWeights[LayerWeights]


def bind_weights(config: Config, binder: TensorBinder) -> Weights:
    """Take every tensor by its name and shape; the embedding serves as head where the file has none of its own."""
    return bind_plain_weights(config, binder, _bind_layer)


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
        ffn_norm=binder.vector(at + "ffn_norm.weight", width),
        ffn_gate=binder.linear(at + "ffn_gate.weight", ffn, width),
        ffn_up=binder.linear(at + "ffn_up.weight", ffn, width),
        ffn_down=binder.linear(at + "ffn_down.weight", width, ffn),
    )


def layer(be: Backend, config: Config, weights: LayerWeights, index: int, x: Floats, step: Step) -> Floats:
    """One layer on token rows `x`; returns the residual stream of the rows that somebody needs."""
    step.tap("before_layer", x)  # [T, D]
    h = be.rms_norm(x, weights.attn_norm, config.rms_eps, "attn_norm")
    x, asking = step.prune(x, h)  # [T, D] -> rows that somebody needs
    q = be.matmul(asking, weights.attn_q)  # [T, H*E]
    k, v = be.matmul(h, weights.attn_k), be.matmul(h, weights.attn_v)  # [T, K*E]
    q = be.head_norm(q, weights.attn_q_norm, config.rms_eps, "attn_q_norm")
    k = be.head_norm(k, weights.attn_k_norm, config.rms_eps, "attn_k_norm")
    q = be.rope(q, step.positions, config.rope, "rope_q")
    step.store(be.rope(k, step.key_positions, config.rope, "rope_k"), v)
    mixed = step.attend(q, (config.n_heads, config.n_kv_heads), config.attention_scale)  # [T, H*E]
    a = be.matmul(mixed, weights.attn_output)  # [T, D]
    step.tap("after_attention", a)
    x = be.add(x, a, "attn_residual")
    h = be.rms_norm(x, weights.ffn_norm, config.rms_eps, "ffn_norm")
    g = be.silu_mul(be.matmul(h, weights.ffn_gate), be.matmul(h, weights.ffn_up))  # [T, F]
    m = be.matmul(g, weights.ffn_down)  # [T, D]
    step.tap("after_mlp", m)
    x = be.add(x, m, "mlp_residual")
    step.tap("after_layer", x)
    return x


def origins(config: Config, weights: Weights, layer_index: int) -> dict[str, SiteOrigin]:
    """Rows of the tensor contract for one layer (see `ember.sites`)."""
    at, w = f"blk.{layer_index}.", weights.layers[layer_index]
    attention = names_of(w.attn_q, w.attn_k, w.attn_v, w.attn_output)
    attention += (at + "attn_q_norm.weight", at + "attn_k_norm.weight")
    attention += (FACTORS,) if config.rope.factors is not None else ()
    mlp = tuple(at + name + ".weight" for name in ("ffn_gate", "ffn_up", "ffn_down"))
    before = ("token_embd.weight",) if layer_index == 0 else ()
    return {
        "before_layer": SiteOrigin("residual stream before the attention addition", None, before),
        "after_attention": SiteOrigin("contribution before the attention addition", at + "attn_norm.weight", attention),
        "after_mlp": SiteOrigin("contribution before the MLP addition", at + "ffn_norm.weight", mlp),
        "after_layer": SiteOrigin("residual stream after the MLP addition", None, attention + mlp),
    }
