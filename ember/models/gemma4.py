"""Gemma 4 (dense text, the E2B, E4B and 31B kind).

Beside Gemma 3's norms and windows: two head sizes (`key_length` for layers that see all positions, `key_length_swa`
for the others), an attention scale of 1, an RMS norm without weight on v, values taken from the raw keys where a layer
has no `attn_v`, last layers that share the keys and values of an earlier one, per-layer embeddings (PLE), a scale on
each layer's output, RoPE on a part of the head by way of `rope_freqs.weight` in the layers that see everything, and a
softcap on the logits. Follows Hugging Face's and llama.cpp's implementations of 2026, against which it is tested.

Shapes: T token rows, D width, H heads, K key/value heads, E head width, F FFN width, P width of a PLE, L layers.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ember.card import SiteOrigin
from ember.engine.backend import Backend
from ember.engine.cache import KVShape
from ember.engine.linear import Linear, names_of
from ember.engine.rope import Rope
from ember.engine.step import Step
from ember.errors import ModelError
from ember.gguf import GGUFFile
from ember.models.common import final_norm
from ember.models.keys import KeyReader
from ember.models.rope_keys import FACTORS, check_rotated, frequency_factors, linear_factor
from ember.models.softcap import softcap
from ember.models.tensors import TensorBinder
from ember.work import Floats, Tokens

__all__ = ["final_norm"]
ARCHITECTURE: Final = "gemma4"
SIDE_ROWS: Final = 512
"""Rows whose PLE inputs are made together: bounds the scratch."""
SHARED_DECOYS: Final = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")
"""Layers that share keys may carry these; converters keep them, nobody uses them."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What differs from layer to layer."""

    window: int
    """Positions that a query sees; 0: all."""
    head_size: int
    n_kv_heads: int
    ffn_size: int
    source: int
    """The layer whose keys and values are read; the layer itself where it has its own."""


@dataclass(frozen=True, slots=True)
class Config:
    """Hyper-parameters, from the file's `gemma4.*` keys."""

    n_layers: int
    hidden_size: int
    n_heads: int
    ple_size: int
    """Width of a per-layer embedding; 0: none."""
    rms_eps: float
    context_length: int
    vocab_size: int
    softcap: float
    layers: tuple[LayerShape, ...]
    rope_full: Rope
    rope_window: Rope


def read_config(file: GGUFFile, keys: KeyReader) -> Config:
    """Read every key that the family knows. Raises ModelError and UnsupportedError, naming the key."""
    keys.refuse_common()
    n_layers = keys.integer("block_count")
    full, window = _head_sizes(file, keys)
    return Config(
        n_layers=n_layers,
        hidden_size=keys.integer("embedding_length"),
        n_heads=keys.integer("attention.head_count"),
        ple_size=keys.integer("embedding_length_per_layer_input", least=0),
        rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
        context_length=keys.integer("context_length"),
        vocab_size=keys.vocab_size(),
        softcap=keys.number("final_logit_softcapping", 30.0),
        layers=_read_layers(file, keys, n_layers, full, window),
        rope_full=_rope_full(file, keys, full),
        rope_window=_rope_window(file, keys, full, window),
    )


def _head_sizes(file: GGUFFile, keys: KeyReader) -> tuple[int, int]:
    sizes = []
    for suffix in ("", "_swa"):
        size = keys.integer("attention.key_length" + suffix)
        value = keys.integer("attention.value_length" + suffix, size)
        if value != size:
            raise ModelError(f"{file.path}: gemma4.attention.value_length{suffix}: found {value}, expected {size}")
        sizes.append(size)
    return sizes[0], sizes[1]


def _rope_full(file: GGUFFile, keys: KeyReader, size: int) -> Rope:
    rotated = keys.integer("rope.dimension_count", size)
    check_rotated(file, ARCHITECTURE, rotated, size)
    factors = frequency_factors(file, size // 2)
    return Rope(keys.number("rope.freq_base", 10000.0), size, "halves", linear_factor(file, keys), factors)


def _rope_window(file: GGUFFile, keys: KeyReader, full: int, size: int) -> Rope:
    rotated = keys.integer("rope.dimension_count_swa", full)
    check_rotated(file, ARCHITECTURE, rotated, size)
    return Rope(keys.number("rope.freq_base_swa", 10000.0), size, "halves")


def _read_layers(file: GGUFFile, keys: KeyReader, n_layers: int, full: int, windowed: int) -> tuple[LayerShape, ...]:
    window = keys.integer("attention.sliding_window")
    sliding = keys.pattern("attention.sliding_window_pattern", n_layers)
    kv_heads = keys.per_layer("attention.head_count_kv", n_layers)
    ffn = keys.per_layer("feed_forward_length", n_layers)
    own = n_layers - keys.integer("attention.shared_kv_layers", 0, least=0)
    sources = [layer if layer < own else _source(file, sliding, layer, own) for layer in range(n_layers)]
    return tuple(
        LayerShape(window if slides else 0, windowed if slides else full, kv_heads[source], ffn[layer], source)
        for layer, (slides, source) in enumerate(zip(sliding, sources, strict=True))
    )


def _source(file: GGUFFile, sliding: tuple[bool, ...], layer: int, own: int) -> int:
    """The last layer with keys of its own that sees as much as `layer`."""
    same = [other for other in range(max(0, own)) if sliding[other] == sliding[layer]]
    if not same:
        raise ModelError(
            f"{file.path}: gemma4.attention.shared_kv_layers: layer {layer} shares keys, but none of the {max(0, own)} "
            "layers with keys of their own is of its kind"
        )
    return same[-1]


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """Keys and values of a layer that has its own."""

    attn_k: Linear  # [K*E, D]
    attn_k_norm: Floats  # [E]
    attn_v: Linear | None  # [K*E, D]; None: values are the raw keys


@dataclass(frozen=True, slots=True)
class PerLayerBlock:
    """The block that adds a layer's PLE."""

    inp_gate: Linear  # [P, D]
    proj: Linear  # [D, P]
    post_norm: Floats  # [D]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Tensors of one layer."""

    attn_norm: Floats  # [D]
    attn_q: Linear  # [H*E, D]
    attn_q_norm: Floats  # [E]
    own: OwnKeys | None
    attn_output: Linear  # [D, H*E]
    post_attention_norm: Floats  # [D]
    ffn_norm: Floats  # [D]
    ffn_gate: Linear  # [F, D]
    ffn_up: Linear  # [F, D]
    ffn_down: Linear  # [D, F]
    post_ffw_norm: Floats  # [D]
    ple: PerLayerBlock | None
    layer_output_scale: float


@dataclass(frozen=True, slots=True)
class PerLayerInputs:
    """What all layers' PLE are made from."""

    token_embd: Linear  # [V, L*P]
    model_proj: Linear  # [L*P, D]
    proj_norm: Floats  # [P]


@dataclass(frozen=True, slots=True)
class Weights:
    """All tensors of a model."""

    token_embd: Linear  # [V, D]
    ple: PerLayerInputs | None
    layers: tuple[LayerWeights, ...]
    output_norm: Floats  # [D]
    output: Linear  # [V, D]
    tied: bool


def bind_weights(config: Config, binder: TensorBinder) -> Weights:
    """Take every tensor by its name and shape; the embedding serves as head where the file has none of its own."""
    vocab, width = config.vocab_size, config.hidden_size
    if not all(shape.window for shape in config.layers):
        # without it heads would turn as a whole; llama.cpp refuses such a file too
        binder.vector(FACTORS, config.rope_full.rotated // 2)
    binder.allow(FACTORS)
    tied = not binder.has("output.weight")
    embedding = binder.linear("token_embd.weight", vocab, width)
    return Weights(
        token_embd=embedding,
        ple=_bind_inputs(config, binder) if config.ple_size else None,
        layers=tuple(_bind_layer(config, binder, index) for index in range(config.n_layers)),
        output_norm=binder.vector("output_norm.weight", width),
        output=embedding if tied else binder.linear("output.weight", vocab, width),
        tied=tied,
    )


def _bind_inputs(config: Config, binder: TensorBinder) -> PerLayerInputs:
    wide = config.n_layers * config.ple_size
    return PerLayerInputs(
        token_embd=binder.linear("per_layer_token_embd.weight", config.vocab_size, wide),
        model_proj=binder.linear("per_layer_model_proj.weight", wide, config.hidden_size),
        proj_norm=binder.vector("per_layer_proj_norm.weight", config.ple_size),
    )


def _bind_layer(config: Config, binder: TensorBinder, index: int) -> LayerWeights:
    width, shape, at = config.hidden_size, config.layers[index], f"blk.{index}."
    queries, ffn = config.n_heads * shape.head_size, shape.ffn_size
    return LayerWeights(
        attn_norm=binder.vector(at + "attn_norm.weight", width),
        attn_q=binder.linear(at + "attn_q.weight", queries, width),
        attn_q_norm=binder.vector(at + "attn_q_norm.weight", shape.head_size),
        own=_bind_own(config, binder, index),
        attn_output=binder.linear(at + "attn_output.weight", width, queries),
        post_attention_norm=binder.vector(at + "post_attention_norm.weight", width),
        ffn_norm=binder.vector(at + "ffn_norm.weight", width),
        ffn_gate=binder.linear(at + "ffn_gate.weight", ffn, width),
        ffn_up=binder.linear(at + "ffn_up.weight", ffn, width),
        ffn_down=binder.linear(at + "ffn_down.weight", width, ffn),
        post_ffw_norm=binder.vector(at + "post_ffw_norm.weight", width),
        ple=_bind_block(config, binder, at) if config.ple_size else None,
        layer_output_scale=float(binder.vector(at + "layer_output_scale.weight", 1)[0]),
    )


def _bind_own(config: Config, binder: TensorBinder, index: int) -> OwnKeys | None:
    shape, at = config.layers[index], f"blk.{index}."
    if shape.source != index:
        binder.ignore(*(at + name for name in SHARED_DECOYS))
        return None
    rows = shape.n_kv_heads * shape.head_size
    # only layers that see everything may take their values from the keys
    own_values = bool(shape.window) or binder.has(at + "attn_v.weight")
    return OwnKeys(
        attn_k=binder.linear(at + "attn_k.weight", rows, config.hidden_size),
        attn_k_norm=binder.vector(at + "attn_k_norm.weight", shape.head_size),
        attn_v=binder.linear(at + "attn_v.weight", rows, config.hidden_size) if own_values else None,
    )


def _bind_block(config: Config, binder: TensorBinder, at: str) -> PerLayerBlock:
    return PerLayerBlock(
        inp_gate=binder.linear(at + "inp_gate.weight", config.ple_size, config.hidden_size),
        proj=binder.linear(at + "proj.weight", config.hidden_size, config.ple_size),
        post_norm=binder.vector(at + "post_norm.weight", config.hidden_size),
    )


def cache_shapes(config: Config) -> tuple[KVShape | None, ...]:
    """What each layer stores per position; nothing where it shares."""
    return tuple(
        KVShape(shape.n_kv_heads, shape.head_size, shape.head_size) if shape.source == index else None
        for index, shape in enumerate(config.layers)
    )


def shared_sources(config: Config) -> frozenset[int]:
    """Layers whose keys and values other layers read."""
    return frozenset(shape.source for index, shape in enumerate(config.layers) if shape.source != index)


def embed(be: Backend, config: Config, weights: Weights, tokens: Tokens, positions: Any) -> Floats:
    """Hidden state entering layer 0: the embedding, scaled by sqrt(D)."""
    return be.scale(be.embed(weights.token_embd, tokens), float(np.sqrt(config.hidden_size)))  # [T, D]


def side_inputs(be: Backend, config: Config, weights: Weights, tokens: Tokens, x: Floats) -> Floats | None:
    """PLE inputs of all layers: [T, L, P]; from the tokens and from the scaled embeddings `x` [T, D]."""
    if weights.ple is None:
        return None
    out = np.empty((len(tokens), config.n_layers, config.ple_size), x.dtype)
    for start in range(0, len(tokens), SIDE_ROWS):
        rows = slice(start, start + SIDE_ROWS)
        out[rows] = _side_rows(be, config, weights.ple, tokens[rows], x[rows]).reshape(out[rows].shape)
    return out


def _side_rows(be: Backend, config: Config, ple: PerLayerInputs, tokens: Tokens, x: Floats) -> Floats:
    own = be.scale(be.embed(ple.token_embd, tokens), float(np.sqrt(config.ple_size)))  # [T, L*P]
    made = be.scale(be.matmul(x, ple.model_proj), float(config.hidden_size**-0.5))  # [T, L*P]
    made = be.head_norm(made, ple.proj_norm, config.rms_eps, "per_layer_proj_norm")
    return be.scale(be.add(own, made, "per_layer_inputs"), float(2**-0.5))


def layer(be: Backend, config: Config, weights: LayerWeights, index: int, x: Floats, step: Step) -> Floats:
    """One layer on token rows `x`; returns the residual stream of the rows that somebody needs."""
    eps = config.rms_eps
    step.tap("before_layer", x)  # [T, D]
    h = be.rms_norm(x, weights.attn_norm, eps, "attn_norm")
    x, mixed = _attention(be, config, weights, index, x, h, step)  # [T, H*E]
    a = be.matmul(mixed, weights.attn_output)  # [T, D]
    a = be.rms_norm(a, weights.post_attention_norm, eps, "post_attention_norm")
    step.tap("after_attention", a)
    x = be.add(x, a, "attn_residual")
    h = be.rms_norm(x, weights.ffn_norm, eps, "ffn_norm")
    g = be.gelu_mul(be.matmul(h, weights.ffn_gate), be.matmul(h, weights.ffn_up))  # [T, F]
    m = be.rms_norm(be.matmul(g, weights.ffn_down), weights.post_ffw_norm, eps, "post_ffw_norm")  # [T, D]
    step.tap("after_mlp", m)
    x = be.add(x, m, "mlp_residual")
    if weights.ple is not None:
        p = be.gelu_mul(be.matmul(x, weights.ple.inp_gate), step.side())  # [T, P]
        p = be.rms_norm(be.matmul(p, weights.ple.proj), weights.ple.post_norm, eps, "post_norm")  # [T, D]
        x = be.add(x, p, "ple_residual")
    x = be.scale(x, weights.layer_output_scale)
    step.tap("after_layer", x)
    return x


def _attention(
    be: Backend, config: Config, weights: LayerWeights, index: int, x: Floats, h: Floats, step: Step
) -> tuple[Floats, Floats]:
    """Prune, and attend with a scale of 1; returns the pruned residual stream and the mixed values."""
    shape, eps = config.layers[index], config.rms_eps
    rope = config.rope_window if shape.window else config.rope_full
    x, asking = step.prune(x, h)  # [T, D] -> rows that somebody needs
    q = be.head_norm(be.matmul(asking, weights.attn_q), weights.attn_q_norm, eps, "attn_q_norm")  # [T, H*E]
    q = be.rope(q, step.positions, rope, "rope_q")
    if weights.own is not None:
        step.store(*_keys_and_values(be, weights.own, shape, eps, h, step, rope))
    return x, step.attend(q, (config.n_heads, shape.n_kv_heads), 1.0, shape.window, shape.source)


def _keys_and_values(
    be: Backend, own: OwnKeys, shape: LayerShape, eps: float, h: Floats, step: Step, rope: Rope
) -> tuple[Floats, Floats]:
    k = be.matmul(h, own.attn_k)  # [T, K*E]
    plain = np.ones(shape.head_size, np.float32)
    # values come from the keys before their norm and before RoPE
    v = be.head_norm(k if own.attn_v is None else be.matmul(h, own.attn_v), plain, eps, "attn_v_norm")  # [T, K*E]
    k = be.head_norm(k, own.attn_k_norm, eps, "attn_k_norm")
    return be.rope(k, step.key_positions, rope, "rope_k"), v


def logits(be: Backend, config: Config, scores: Floats) -> Floats:
    """What follows the head's matrix: the softcap."""
    return softcap(scores, config.softcap)


def origins(config: Config, weights: Weights, layer_index: int) -> dict[str, SiteOrigin]:
    """Rows of the tensor contract for one layer (see `ember.sites`)."""
    at, w = f"blk.{layer_index}.", weights.layers[layer_index]
    attention = (*_key_names(config, weights, layer_index), *names_of(w.attn_q, w.attn_output))
    attention += (at + "attn_q_norm.weight", at + "post_attention_norm.weight")
    attention += () if config.layers[layer_index].window else (FACTORS,)
    mlp = (*names_of(w.ffn_gate, w.ffn_up, w.ffn_down), at + "post_ffw_norm.weight")
    ple = (*_input_names(weights), *names_of(w.ple.inp_gate, w.ple.proj), at + "post_norm.weight") if w.ple else ()
    scale = (at + "layer_output_scale.weight",)
    before = ("token_embd.weight",) if layer_index == 0 else ()
    return {
        "before_layer": SiteOrigin("residual stream before the attention addition", None, before),
        "after_attention": SiteOrigin(
            "contribution after the post-attention norm, before its addition", at + "attn_norm.weight", attention
        ),
        "after_mlp": SiteOrigin(
            "contribution after the post-FFN norm, before its addition", at + "ffn_norm.weight", mlp
        ),
        "after_layer": SiteOrigin(
            "residual stream after the MLP and per-layer-embedding additions and the output scale",
            None,
            attention + mlp + ple + scale,
        ),
    }


def _key_names(config: Config, weights: Weights, layer_index: int) -> tuple[str, ...]:
    source = config.layers[layer_index].source
    own = weights.layers[source].own
    assert own is not None, f"layer {source} has keys of its own"
    linears = (own.attn_k,) if own.attn_v is None else (own.attn_k, own.attn_v)
    return (*names_of(*linears), f"blk.{source}.attn_k_norm.weight")


def _input_names(weights: Weights) -> tuple[str, ...]:
    assert weights.ple is not None, "a layer has a per-layer block where the model has per-layer inputs"
    return (*names_of(weights.ple.token_embd, weights.ple.model_proj), "per_layer_proj_norm.weight")


def head_origins(weights: Weights) -> dict[str, SiteOrigin]:
    """Rows of the tensor contract for the two logits sites."""
    head = "token_embd.weight" if weights.tied else "output.weight"
    return {
        "before_logits": SiteOrigin("after the final norm", "output_norm.weight", ()),
        "after_logits": SiteOrigin("LM head output after the softcap", "output_norm.weight", (head,)),
    }
