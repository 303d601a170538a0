"""What llama, qwen2 and qwen3 have in common: hyper-parameters that hold for every layer, embedding, norm and head.

Their blocks differ, and stand in their own files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ember.engine.linear import Linear
from ember.engine.rope import PairLayout, Rope
from ember.gguf import GGUFFile
from ember.models.keys import KeyReader
from ember.models.rope_keys import FACTORS, read_rope
from ember.models.tensors import TensorBinder
from ember.work import Floats

Layer = TypeVar("Layer")

ABSENT: Final = {
    # keys that these families do not have; a file that carries one means something else by its architecture
    "attention.sliding_window": "sliding windows are",
    "attention.scale": "a custom attention scale is",
    "final_logit_softcapping": "a logit softcap is",
    "attn_logit_softcapping": "an attention softcap is",
}


@dataclass(frozen=True, slots=True)
class PlainConfig:
    """Hyper-parameters of a decoder whose layers are all alike, from the file's `{arch}.*` keys."""

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
    rope: Rope

    @property
    def attention_scale(self) -> float:
        """Factor on q·k before the softmax."""
        return float(self.key_size**-0.5)


@dataclass(frozen=True, slots=True)
class PlainWeights(Generic[Layer]):
    """All tensors of a model."""

    token_embd: Linear  # [V, D]
    layers: tuple[Layer, ...]
    output_norm: Floats  # [D]
    output: Linear  # [V, D]
    tied: bool


def read_plain_config(file: GGUFFile, keys: KeyReader, layout: PairLayout) -> PlainConfig:
    """Read every key that these families know. Raises ModelError and UnsupportedError, naming the key."""
    keys.refuse_common()
    for name, what in ABSENT.items():
        keys.refuse_unless(name, (0, 0.0), f"{what} not supported in the {keys.architecture} family")
    width = keys.integer("embedding_length")
    heads = keys.integer("attention.head_count")
    key_size = keys.integer("attention.key_length", max(1, width // heads))
    return PlainConfig(
        n_layers=keys.integer("block_count"),
        hidden_size=width,
        ffn_size=keys.integer("feed_forward_length"),
        n_heads=heads,
        n_kv_heads=keys.kv_heads(heads),
        key_size=key_size,
        value_size=keys.integer("attention.value_length", key_size),
        rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
        context_length=keys.integer("context_length"),
        vocab_size=keys.vocab_size(),
        rope=read_rope(file, keys, key_size, layout),
    )


def bind_plain_weights(
    config: PlainConfig, binder: TensorBinder, bind_layer: Callable[[PlainConfig, TensorBinder, str], Layer]
) -> PlainWeights[Layer]:
    """Take every tensor by its name and shape; the embedding serves as head where the file has none of its own."""
    vocab, width = config.vocab_size, config.hidden_size
    binder.allow(FACTORS)
    tied = not binder.has("output.weight")
    embedding = binder.linear("token_embd.weight", vocab, width)
    return PlainWeights(
        token_embd=embedding,
        layers=tuple(bind_layer(config, binder, f"blk.{index}.") for index in range(config.n_layers)),
        output_norm=binder.vector("output_norm.weight", width),
        output=embedding if tied else binder.linear("output.weight", vocab, width),
        tied=tied,
    )
