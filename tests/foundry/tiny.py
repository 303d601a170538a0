"""Tiny llama-family GGUF files of random weights, complete enough for llama.cpp and for tokenising any text."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value
from numpy.typing import NDArray

from tests.foundry.blocks import quantised
from tests.foundry.files import Keys, write_gguf
from tests.foundry.vocab import tiny_vocabulary

_FILE_TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 11, "Q4_K": 15,
    "Q5_K": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25, "IQ3_S": 26,
    "IQ2_S": 28, "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32, "TQ1_0": 36, "TQ2_0": 37, "MXFP4": 38, "NVFP4": 39,
}  # fmt: skip
_LOGIT_SPREAD = 3.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The hyper-parameters of a tiny llama; `head_dim` need not be d / n_heads."""

    seed: int
    n_layers: int
    d: int
    n_heads: int
    n_kv: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    rope_freqs: bool
    context: int
    rope_base: float
    eps: float
    quant: Mapping[str, str] = field(default_factory=lambda: {"": "F32"})

    def type_of(self, tensor: str) -> str:
        """Name the ggml type of a matrix: the longest key of `quant` contained in its name decides."""
        return self.quant[max((key for key in self.quant if key in tensor), key=len)]


def tiny_llama(
    path: str | Path,
    *,
    seed: int = 0,
    n_layers: int = 3,
    d: int = 64,
    n_heads: int = 8,
    n_kv: int = 2,
    ffn: int = 96,
    vocab: int = 512,
    quant: str | Mapping[str, str] = "F32",
    tied: bool = False,
    rope_freqs: bool = False,
    context: int = 512,
    key_length: int | None = None,
    pre: str = "gpt-2",
    rope_base: float = 10000.0,
    eps: float = 1e-5,
    add_bos: bool | None = None,
    metadata: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
) -> Path:
    """Write a tiny llama and return its path; the same arguments give the same bytes.

    `quant` is the ggml type of every matrix, or a mapping from parts of tensor names to types with "" as the default
    ({"": "Q4_K", "ffn_down": "Q6_K"}); K-quants, IQ and TQ need rows of multiples of 256. Matrices of one seed are the
    same whatever the type, up to rounding (those of `tests.foundry.blocks.DRAWN` are drawn anew). Arabic and any other
    text can be tokenised: 256 bytes, merges, and BOS = vocab - 2, EOS = vocab - 1. `metadata` sets or, with None,
    removes keys; `without` leaves out tensors.
    """
    types = {"": quant} if isinstance(quant, str) else {"": "F32", **quant}
    head_dim = key_length or d // n_heads
    shape = Shape(
        seed, n_layers, d, n_heads, n_kv, head_dim, ffn, vocab, tied, rope_freqs, context, rope_base, eps, types
    )
    keys = {**model_keys(shape, explicit_head=key_length is not None), **tokenizer_keys(vocab, pre, add_bos)}
    keys |= {key: (_value_type(value), value) for key, value in (metadata or {}).items() if value is not None}
    removed = {key for key, value in (metadata or {}).items() if value is None}
    tensors = ((name, stored, kind) for name, stored, kind in _tensors(shape) if name not in without)
    return write_gguf(path, {key: pair for key, pair in keys.items() if key not in removed}, tensors)


def model_keys(shape: Shape, *, explicit_head: bool) -> Keys:
    keys = {
        "general.architecture": (Value.STRING, "llama"),
        "general.type": (Value.STRING, "model"),
        "general.name": (Value.STRING, "tiny-random-llama"),
        "general.file_type": (Value.UINT32, _FILE_TYPES.get(shape.quant[""], 0)),
        "general.quantization_version": (Value.UINT32, 2),
        "llama.block_count": (Value.UINT32, shape.n_layers),
        "llama.context_length": (Value.UINT32, shape.context),
        "llama.embedding_length": (Value.UINT32, shape.d),
        "llama.feed_forward_length": (Value.UINT32, shape.ffn),
        "llama.attention.head_count": (Value.UINT32, shape.n_heads),
        "llama.attention.head_count_kv": (Value.UINT32, shape.n_kv),
        "llama.rope.freq_base": (Value.FLOAT32, shape.rope_base),
        "llama.attention.layer_norm_rms_epsilon": (Value.FLOAT32, shape.eps),
        "llama.vocab_size": (Value.UINT32, shape.vocab),
        "llama.rope.dimension_count": (Value.UINT32, shape.head_dim),
    }
    if explicit_head:
        keys["llama.attention.key_length"] = (Value.UINT32, shape.head_dim)
        keys["llama.attention.value_length"] = (Value.UINT32, shape.head_dim)
    return keys


def tokenizer_keys(size: int, pre: str, add_bos: bool | None) -> Keys:
    vocabulary = tiny_vocabulary(size)
    keys: Keys = {
        "tokenizer.ggml.model": (Value.STRING, "gpt2"),
        "tokenizer.ggml.pre": (Value.STRING, pre),
        "tokenizer.ggml.tokens": (Value.STRING, vocabulary.tokens),
        "tokenizer.ggml.token_type": (Value.INT32, vocabulary.types),
        "tokenizer.ggml.merges": (Value.STRING, vocabulary.merges),
        "tokenizer.ggml.bos_token_id": (Value.UINT32, vocabulary.bos_id),
        "tokenizer.ggml.eos_token_id": (Value.UINT32, vocabulary.eos_id),
    }
    if add_bos is not None:
        keys["tokenizer.ggml.add_bos_token"] = (Value.BOOL, add_bos)
    return {key: pair for key, pair in keys.items() if pair[1] != []}


def _value_type(value: Any) -> Value:
    first = value[0] if isinstance(value, list) else value
    if isinstance(first, bool):
        return Value.BOOL
    return {str: Value.STRING, int: Value.UINT32, float: Value.FLOAT32}[type(first)]


def _tensors(shape: Shape) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    """Yield (name, as stored, type). Gains keep each block's contribution of the order of the residual stream."""
    wide, narrow = shape.n_heads * shape.head_dim, shape.n_kv * shape.head_dim
    if shape.rope_freqs:
        yield "rope_freqs.weight", llama3_factors(shape.head_dim, shape.rope_base), Type.F32
    yield _matrix(shape, "token_embd.weight", shape.vocab, shape.d, gain=shape.d**0.5)
    yield "output_norm.weight", _output_norm(shape), Type.F32
    if not shape.tied:
        yield _matrix(shape, "output.weight", shape.vocab, shape.d, gain=_LOGIT_SPREAD)
    for layer in range(shape.n_layers):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", _norm(shape, block + "attn_norm"), Type.F32
        yield block + "ffn_norm.weight", _norm(shape, block + "ffn_norm"), Type.F32
        yield _matrix(shape, block + "attn_q.weight", wide, shape.d, gain=1.5)
        yield _matrix(shape, block + "attn_k.weight", narrow, shape.d, gain=1.5)
        yield _matrix(shape, block + "attn_v.weight", narrow, shape.d, gain=1.5)
        yield _matrix(shape, block + "attn_output.weight", shape.d, wide, gain=1.0)
        yield _matrix(shape, block + "ffn_gate.weight", shape.ffn, shape.d, gain=1.5)
        yield _matrix(shape, block + "ffn_up.weight", shape.ffn, shape.d, gain=1.0)
        yield _matrix(shape, block + "ffn_down.weight", shape.d, shape.ffn, gain=1.0)


def _seeds(shape: Shape, name: str) -> list[int]:
    return [shape.seed, zlib.crc32(name.encode())]


def _matrix(shape: Shape, name: str, rows: int, columns: int, *, gain: float) -> tuple[str, NDArray[np.generic], Type]:
    values = np.random.default_rng(_seeds(shape, name)).standard_normal((rows, columns)) * (gain / columns**0.5)
    kind = shape.type_of(name)
    return name, quantised(values.astype(np.float32), kind, _seeds(shape, "blocks of " + name)), Type[kind]


def _norm(shape: Shape, name: str) -> NDArray[np.float32]:
    return np.random.default_rng(_seeds(shape, name)).normal(1.0, 0.1, shape.d).astype(np.float32)


def _output_norm(shape: Shape) -> NDArray[np.float32]:
    """Near one; with a tied head of mean zero, since the head would else answer every token with itself."""
    if not shape.tied:
        return _norm(shape, "output_norm")
    drawn = np.random.default_rng(_seeds(shape, "output_norm")).standard_normal(shape.d)
    return (drawn * _LOGIT_SPREAD / shape.d**0.5).astype(np.float32)


def llama3_factors(head_dim: int, base: float, *, factor: float = 8.0, original: int = 64) -> NDArray[np.float32]:
    """Llama 3.1's frequency factors [head_dim / 2] (low 1, high 4), with a tiny original context so that they show."""
    wavelengths = 2 * np.pi * base ** (np.arange(0, head_dim, 2) / head_dim)
    smooth = np.clip((original / wavelengths - 1.0) / (4.0 - 1.0), 0.0, 1.0)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
