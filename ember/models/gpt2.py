"""GPT-2: learned positions, LayerNorm with bias, fused q, k and v, GELU.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". GGUF files hold the matrices already
transposed from the Conv1D of checkpoints; the rows of `attn_qkv` are q, then k, then v, each D wide, read as three
weights. The bias of k changes no output, since it adds the same score to every key.

Shapes: T token rows, D width, H heads, E head width, F FFN width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, Final

from ember.card import SiteOrigin
from ember.engine.backend import Backend
from ember.engine.linear import Linear
from ember.engine.step import Step
from ember.errors import ModelError
from ember.gguf import GGUFFile
from ember.models.common import cache_shapes, logits, shared_sources, side_inputs
from ember.models.keys import KeyReader
from ember.models.tensors import TensorBinder
from ember.work import Floats, Tokens

__all__ = ["cache_shapes", "logits", "shared_sources", "side_inputs"]
ARCHITECTURE: Final = "gpt2"


@dataclass(frozen=True, slots=True)
class Config:
    """Hyper-parameters, from the file's `gpt2.*` keys."""

    n_layers: int
    hidden_size: int
    ffn_size: int
    n_heads: int
    key_size: int
    """Width of a head."""
    norm_eps: float
    context_length: int
    """Rows of the table of learned positions."""
    vocab_size: int

    @property
    def n_kv_heads(self) -> int:
        """Every query head has its own keys."""
        return self.n_heads

    @property
    def value_size(self) -> int:
        """Width of a value head."""
        return self.key_size

    @property
    def attention_scale(self) -> float:
        """Factor on q·k before the softmax."""
        return float(self.key_size**-0.5)


def read_config(file: GGUFFile, keys: KeyReader) -> Config:
    """Read every key that the family knows. Raises ModelError and UnsupportedError, naming the key."""
    keys.refuse_common()
    width = keys.integer("embedding_length")
    heads = keys.integer("attention.head_count")
    if width % heads:
        raise ModelError(f"{file.path}: gpt2.attention.head_count: found {heads}, expected a divisor of {width}")
    keys.refuse_unless("attention.head_count_kv", (heads,), "grouped heads are not supported in the gpt2 family")
    return Config(
        n_layers=keys.integer("block_count"),
        hidden_size=width,
        ffn_size=keys.integer("feed_forward_length"),
        n_heads=heads,
        key_size=width // heads,
        norm_eps=keys.number("attention.layer_norm_epsilon"),
        context_length=keys.integer("context_length"),
        vocab_size=keys.vocab_size(),
    )


@dataclass(frozen=True, slots=True)
class Norm:
    """Weight and bias of a LayerNorm, [D] each."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Tensors of one layer."""

    attn_norm: Norm
    attn_q: Linear  # [D, D]
    attn_k: Linear  # [D, D]
    attn_v: Linear  # [D, D]
    attn_qkv_bias: tuple[Floats, Floats, Floats]  # [D] each
    attn_output: Linear  # [D, D]
    attn_output_bias: Floats  # [D]
    ffn_norm: Norm
    ffn_up: Linear  # [F, D]
    ffn_up_bias: Floats  # [F]
    ffn_down: Linear  # [D, F]
    ffn_down_bias: Floats  # [D]


@dataclass(frozen=True, slots=True)
class Weights:
    """All tensors of a model."""

    token_embd: Linear  # [V, D]
    position_embd: Linear  # [context, D]
    layers: tuple[LayerWeights, ...]
    output_norm: Norm
    output: Linear  # [V, D]
    tied: bool


def bind_weights(config: Config, binder: TensorBinder) -> Weights:
    """Take every tensor by its name and shape; the embedding serves as head where the file has none of its own."""
    vocab, width = config.vocab_size, config.hidden_size
    tied = not binder.has("output.weight")
    embedding = binder.linear("token_embd.weight", vocab, width)
    return Weights(
        token_embd=embedding,
        position_embd=binder.linear("position_embd.weight", config.context_length, width),
        layers=tuple(_bind_layer(config, binder, f"blk.{index}.") for index in range(config.n_layers)),
        output_norm=_bind_norm(binder, "output_norm", width),
        output=embedding if tied else binder.linear("output.weight", vocab, width),
        tied=tied,
    )


def _bind_norm(binder: TensorBinder, name: str, width: int) -> Norm:
    return Norm(binder.vector(name + ".weight", width), binder.vector(name + ".bias", width))


def _bind_layer(config: Config, binder: TensorBinder, at: str) -> LayerWeights:
    width, ffn = config.hidden_size, config.ffn_size
    qkv = binder.fused(at + "attn_qkv.weight", {"attn_q": width, "attn_k": width, "attn_v": width}, width)
    bias = binder.vector(at + "attn_qkv.bias", 3 * width)
    return LayerWeights(
        attn_norm=_bind_norm(binder, at + "attn_norm", width),
        **qkv,
        attn_qkv_bias=(bias[:width], bias[width : 2 * width], bias[2 * width :]),
        attn_output=binder.linear(at + "attn_output.weight", width, width),
        attn_output_bias=binder.vector(at + "attn_output.bias", width),
        ffn_norm=_bind_norm(binder, at + "ffn_norm", width),
        ffn_up=binder.linear(at + "ffn_up.weight", ffn, width),
        ffn_up_bias=binder.vector(at + "ffn_up.bias", ffn),
        ffn_down=binder.linear(at + "ffn_down.weight", width, ffn),
        ffn_down_bias=binder.vector(at + "ffn_down.bias", width),
    )


def embed(be: Backend, config: Config, weights: Weights, tokens: Tokens, positions: Any) -> Floats:
    """Hidden state entering layer 0: embedding plus learned position."""
    x = be.embed(weights.token_embd, tokens)  # [T, D]
    return be.add(x, be.embed(weights.position_embd, positions), "position")


def layer(be: Backend, config: Config, weights: LayerWeights, index: int, x: Floats, step: Step) -> Floats:
    """One layer on token rows `x`; returns the residual stream of the rows that somebody needs."""
    step.tap("before_layer", x)  # [T, D]
    q_bias, k_bias, v_bias = weights.attn_qkv_bias
    h = be.layer_norm(x, weights.attn_norm.weight, weights.attn_norm.bias, config.norm_eps, "attn_norm")
    x, asking = step.prune(x, h)  # [T, D] -> rows that somebody needs
    q = be.add_bias(be.matmul(asking, weights.attn_q), q_bias, "attn_q_bias")  # [T, D]
    k = be.add_bias(be.matmul(h, weights.attn_k), k_bias, "attn_k_bias")  # [T, D]
    v = be.add_bias(be.matmul(h, weights.attn_v), v_bias, "attn_v_bias")  # [T, D]
    step.store(k, v)
    mixed = step.attend(q, (config.n_heads, config.n_heads), config.attention_scale)  # [T, D]
    a = be.add_bias(be.matmul(mixed, weights.attn_output), weights.attn_output_bias, "attn_output_bias")  # [T, D]
    step.tap("after_attention", a)
    x = be.add(x, a, "attn_residual")
    h = be.layer_norm(x, weights.ffn_norm.weight, weights.ffn_norm.bias, config.norm_eps, "ffn_norm")
    g = be.gelu(be.add_bias(be.matmul(h, weights.ffn_up), weights.ffn_up_bias, "ffn_up_bias"))  # [T, F]
    m = be.add_bias(be.matmul(g, weights.ffn_down), weights.ffn_down_bias, "ffn_down_bias")  # [T, D]
    step.tap("after_mlp", m)
    x = be.add(x, m, "mlp_residual")
    step.tap("after_layer", x)
    return x


def final_norm(be: Backend, config: Config, weights: Weights, x: Floats) -> Floats:
    """Hidden state that the head reads: LayerNorm."""
    return be.layer_norm(x, weights.output_norm.weight, weights.output_norm.bias, config.norm_eps, "output_norm")


def origins(config: Config, weights: Weights, layer_index: int) -> dict[str, SiteOrigin]:
    """Rows of the tensor contract for one layer (see `ember.sites`)."""
    at = f"blk.{layer_index}."
    attention = tuple(at + name + kind for name in ("attn_qkv", "attn_output") for kind in (".weight", ".bias"))
    attention += (at + "attn_norm.bias",)
    mlp = tuple(at + name + kind for name in ("ffn_up", "ffn_down") for kind in (".weight", ".bias"))
    mlp += (at + "ffn_norm.bias",)
    before = ("token_embd.weight", "position_embd.weight") if layer_index == 0 else ()
    return {
        "before_layer": SiteOrigin("residual stream before the attention addition", None, before),
        "after_attention": SiteOrigin("contribution before the attention addition", at + "attn_norm.weight", attention),
        "after_mlp": SiteOrigin("contribution before the MLP addition", at + "ffn_norm.weight", mlp),
        "after_layer": SiteOrigin("residual stream after the MLP addition", None, attention + mlp),
    }


def head_origins(weights: Weights) -> dict[str, SiteOrigin]:
    """Rows of the tensor contract for the two logits sites."""
    head = "token_embd.weight" if weights.tied else "output.weight"
    return {
        "before_logits": SiteOrigin("after the final norm", "output_norm.weight", ("output_norm.bias",)),
        "after_logits": SiteOrigin("LM head output", "output_norm.weight", ("output_norm.bias", head)),
    }
