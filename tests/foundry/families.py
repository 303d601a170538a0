"""Tiny GGUF files of random weights of every family, with the keys and tensors that llama.cpp's converter writes."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value
from numpy.typing import NDArray

from tests.foundry.blocks import quantised
from tests.foundry.families_vocab import gemma_keys
from tests.foundry.files import Keys, write_gguf
from tests.foundry.tiny import tokenizer_keys

Floats = NDArray[np.float32]
Edit = Callable[[Floats], Floats]
LOGIT_SPREAD = 3.0
GEMMAS = ("gemma3", "gemma4")
PRE = {"gpt2": "gpt-2", "llama": "llama-bpe", "qwen2": "qwen2", "qwen3": "qwen2"}


@dataclass(frozen=True, slots=True)
class Tiny:
    """What a tiny model is like; the defaults give a small file of `family` with every key that is usual there."""

    family: str
    seed: int = 1
    n_layers: int = 3
    d: int = 32
    n_heads: int = 4
    n_kv: int | tuple[int, ...] = 2
    head_dim: int = 8
    """Of the layers that see everything."""
    head_dim_swa: int = 0
    """Of gemma4's layers with a window; 0: as the others."""
    ffn: int | tuple[int, ...] = 48
    vocab: int = 300
    tied: bool = True
    context: int = 640
    rope_base: float = 100000.0
    rope_base_swa: float | None = 10000.0
    linear: float | None = None
    eps: float = 1e-6
    quant: Mapping[str, str] = field(default_factory=lambda: {"": "F32"})
    fused: bool = False
    """One attn_qkv in place of attn_q, attn_k and attn_v."""
    window: int = 8
    sliding: int | tuple[bool, ...] | None = None
    """Gemma: which layers have the window: the pattern key, absent where None (every sixth has none)."""
    ple: int = 0
    shared: int = 0
    decoys: bool = False
    """Keys and values, which nobody reads, in the layers that share."""
    without_v: tuple[int, ...] = ()
    softcap: float | None = None
    post_norm: float = 1.3
    """Mean of Gemma's norms after attention and MLP: how much of the residual stream each adds."""
    dropped: tuple[str, ...] = ()
    """Keys left out, without the architecture in front."""

    def slides(self, layer: int) -> bool:
        """Whether a layer has the window."""
        if isinstance(self.sliding, tuple):
            return self.sliding[layer]
        every = 6 if self.sliding is None else self.sliding
        return layer % every != every - 1

    def head_size(self, layer: int) -> int:
        """Width of a layer's heads."""
        if self.family == "gpt2":
            return self.d // self.n_heads
        narrow = self.family == "gemma4" and self.head_dim_swa and self.slides(layer)
        return self.head_dim_swa if narrow else self.head_dim

    def kv_heads(self, layer: int) -> int:
        """Key/value heads of a layer."""
        if self.family == "gpt2":
            return self.n_heads
        return self.n_kv[layer] if isinstance(self.n_kv, tuple) else self.n_kv

    def ffn_size(self, layer: int) -> int:
        """Width of a layer's MLP."""
        return self.ffn[layer] if isinstance(self.ffn, tuple) else self.ffn

    def type_of(self, tensor: str) -> str:
        """Name the ggml type of a matrix: the longest key of `quant` contained in its name decides."""
        return self.quant[max((key for key in self.quant if key in tensor), key=len)]


def tiny_family(
    path: str | Path,
    tiny: Tiny,
    *,
    metadata: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    renamed: Mapping[str, str] | None = None,
    edited: Mapping[str, Edit] | None = None,
) -> Path:
    """Write a tiny model and return its path; the same arguments give the same bytes.

    `metadata` sets keys to (type, value) or, with None, removes them; tensors can be left out, renamed, and F32 ones
    edited.
    """
    keys = family_keys(tiny) | dict(metadata or {})
    names, edits = renamed or {}, edited or {}
    tensors = (
        (names.get(name, name), edits[name](stored).astype(np.float32) if name in edits else stored, kind)
        for name, stored, kind in family_tensors(tiny)
        if name not in without
    )
    return write_gguf(path, {key: pair for key, pair in keys.items() if pair is not None}, tensors)


def family_keys(tiny: Tiny) -> dict[str, Any]:
    """Give every metadata key as (type, value), in the order and types of llama.cpp's converter."""
    named = _named_keys(tiny) | _rope_keys(tiny) | _gemma_keys(tiny)
    keys: Keys = {
        "general.architecture": (Value.STRING, tiny.family),
        "general.type": (Value.STRING, "model"),
        "general.name": (Value.STRING, f"tiny-random-{tiny.family}"),
        "general.file_type": (Value.UINT32, 0),
        "general.quantization_version": (Value.UINT32, 2),
    }
    keys |= {f"{tiny.family}.{name}": pair for name, pair in named.items() if name not in tiny.dropped}
    if tiny.family in GEMMAS:
        return keys | gemma_keys(tiny.vocab, "llama" if tiny.family == "gemma3" else "gemma4")
    return keys | tokenizer_keys(tiny.vocab, PRE[tiny.family], None if tiny.family == "gpt2" else False)


def _named_keys(tiny: Tiny) -> Keys:
    keys: Keys = {
        "block_count": (Value.UINT32, tiny.n_layers),
        "context_length": (Value.UINT32, tiny.context),
        "embedding_length": (Value.UINT32, tiny.d),
        "feed_forward_length": _count(tiny.ffn),
        "attention.head_count": (Value.UINT32, tiny.n_heads),
    }
    if tiny.family == "gpt2":
        return keys | {"attention.layer_norm_epsilon": (Value.FLOAT32, tiny.eps)}
    keys["attention.head_count_kv"] = _count(tiny.n_kv)
    keys["attention.layer_norm_rms_epsilon"] = (Value.FLOAT32, tiny.eps)
    if tiny.family in ("qwen3", *GEMMAS) or tiny.head_dim != tiny.d // tiny.n_heads:
        keys["attention.key_length"] = keys["attention.value_length"] = (Value.UINT32, tiny.head_dim)
    return keys


def _count(value: int | tuple[int, ...]) -> tuple[Value, Any]:
    return (Value.INT32, list(value)) if isinstance(value, tuple) else (Value.UINT32, value)


def _rope_keys(tiny: Tiny) -> Keys:
    if tiny.family == "gpt2":
        return {}
    keys: Keys = {"rope.freq_base": (Value.FLOAT32, tiny.rope_base)}
    if tiny.family in ("llama", "gemma4"):
        keys["rope.dimension_count"] = (Value.UINT32, tiny.head_dim)
    if tiny.linear is not None:
        keys |= {"rope.scaling.type": (Value.STRING, "linear"), "rope.scaling.factor": (Value.FLOAT32, tiny.linear)}
    return keys


def _gemma_keys(tiny: Tiny) -> Keys:
    if tiny.family not in GEMMAS:
        return {}
    keys: Keys = {"attention.sliding_window": (Value.UINT32, tiny.window)}
    if tiny.sliding is not None:
        flags = isinstance(tiny.sliding, tuple)
        keys["attention.sliding_window_pattern"] = (
            (Value.BOOL, list(tiny.sliding)) if flags else (Value.UINT32, tiny.sliding)
        )
    if tiny.rope_base_swa is not None:
        keys["rope.freq_base_swa"] = (Value.FLOAT32, tiny.rope_base_swa)
    if tiny.softcap is not None:
        keys["final_logit_softcapping"] = (Value.FLOAT32, tiny.softcap)
    if tiny.family == "gemma3":
        return keys
    narrow = (Value.UINT32, tiny.head_dim_swa or tiny.head_dim)
    return keys | {
        "attention.shared_kv_layers": (Value.UINT32, tiny.shared),
        "embedding_length_per_layer_input": (Value.UINT32, tiny.ple),
        "attention.key_length_swa": narrow,
        "attention.value_length_swa": narrow,
        "rope.dimension_count_swa": narrow,
    }


def family_tensors(tiny: Tiny) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    """Yield (name, as stored, type). Gains keep each block's contribution of the order of the residual stream."""
    scaled = tiny.family in GEMMAS
    yield _matrix(tiny, "token_embd.weight", tiny.vocab, tiny.d, gain=1.0 if scaled else tiny.d**0.5)
    if tiny.family == "gpt2":
        name = "position_embd.weight"
        yield name, _drawn(tiny, name, (tiny.context, tiny.d), 0.0, 0.5), Type.F32
    yield from _head(tiny, scaled=scaled)
    if tiny.family == "gemma4":
        yield from _gemma4_globals(tiny)
    for layer in range(tiny.n_layers):
        yield from _attention(tiny, layer, f"blk.{layer}.")
        yield from _mlp(tiny, layer, f"blk.{layer}.")
        if tiny.family == "gemma4":
            yield from _gemma4_block(tiny, f"blk.{layer}.")


def _head(tiny: Tiny, *, scaled: bool) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    """With a tied head the final norm has mean zero, since the head would else answer every token with itself."""
    spread = LOGIT_SPREAD / (1.0 if scaled else tiny.d**0.5)
    centre, deviation = (0.0, spread) if tiny.tied else (1.0, 0.1)
    yield "output_norm.weight", _drawn(tiny, "output_norm.weight", (tiny.d,), centre, deviation), Type.F32
    if tiny.family == "gpt2":
        yield _bias(tiny, "output_norm.bias", tiny.d)
    if not tiny.tied:
        yield _matrix(tiny, "output.weight", tiny.vocab, tiny.d, gain=LOGIT_SPREAD)


def _gemma4_globals(tiny: Tiny) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    factors = np.full(tiny.head_dim // 2, 1e30, np.float32)
    factors[: max(1, tiny.head_dim // 8)] = 1.0
    yield "rope_freqs.weight", factors, Type.F32
    if tiny.ple:
        wide = tiny.n_layers * tiny.ple
        yield _matrix(tiny, "per_layer_token_embd.weight", tiny.vocab, wide, gain=tiny.n_layers**0.5)
        yield _matrix(tiny, "per_layer_model_proj.weight", wide, tiny.d, gain=2.0)
        yield _norm(tiny, "per_layer_proj_norm.weight", tiny.ple)


def _attention(tiny: Tiny, layer: int, at: str) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    head, rows = tiny.head_size(layer), tiny.n_heads * tiny.head_size(layer)
    yield from _norms(tiny, at + "attn_norm", tiny.d)
    yield from _queries_and_keys(tiny, layer, at)
    if tiny.family in ("qwen3", *GEMMAS):
        shares = layer >= tiny.n_layers - tiny.shared and not tiny.decoys
        # gemma4 does not divide q·k by sqrt(E): larger norms would make attention a choice, and rounding show
        centre = 0.5 if tiny.family == "gemma4" else 0.8
        for name in ("attn_q_norm",) if shares else ("attn_q_norm", "attn_k_norm"):
            yield f"{at}{name}.weight", _drawn(tiny, f"{at}{name}.weight", (head,), centre, 0.1), Type.F32
    yield _matrix(tiny, at + "attn_output.weight", tiny.d, rows, gain=1.0)
    if tiny.family == "gpt2":
        yield _bias(tiny, at + "attn_output.bias", tiny.d)
    if tiny.family in GEMMAS:
        yield _norm(tiny, at + "post_attention_norm.weight", tiny.d, tiny.post_norm)


def _queries_and_keys(tiny: Tiny, layer: int, at: str) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    rows = tiny.n_heads * tiny.head_size(layer)
    narrow = tiny.kv_heads(layer) * tiny.head_size(layer)
    biased = tiny.family == "qwen2"
    if tiny.family == "gpt2" or tiny.fused:
        yield _matrix(tiny, at + "attn_qkv.weight", rows + 2 * narrow, tiny.d, gain=1.5)
        if tiny.family == "gpt2" or biased:
            yield _bias(tiny, at + "attn_qkv.bias", rows + 2 * narrow)
        return
    yield _matrix(tiny, at + "attn_q.weight", rows, tiny.d, gain=1.5)
    if biased:
        yield _bias(tiny, at + "attn_q.bias", rows)
    if layer >= tiny.n_layers - tiny.shared and not tiny.decoys:
        return
    for name in ("attn_k",) if layer in tiny.without_v else ("attn_k", "attn_v"):
        yield _matrix(tiny, f"{at}{name}.weight", narrow, tiny.d, gain=1.5)
        if biased:
            yield _bias(tiny, f"{at}{name}.bias", narrow)


def _mlp(tiny: Tiny, layer: int, at: str) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    ffn, plain = tiny.ffn_size(layer), tiny.family == "gpt2"
    yield from _norms(tiny, at + "ffn_norm", tiny.d)
    if not plain:
        yield _matrix(tiny, at + "ffn_gate.weight", ffn, tiny.d, gain=1.5)
    yield _matrix(tiny, at + "ffn_up.weight", ffn, tiny.d, gain=1.0)
    yield _matrix(tiny, at + "ffn_down.weight", tiny.d, ffn, gain=1.0)
    if plain:
        yield _bias(tiny, at + "ffn_up.bias", ffn)
        yield _bias(tiny, at + "ffn_down.bias", tiny.d)
    if tiny.family in GEMMAS:
        yield _norm(tiny, at + "post_ffw_norm.weight", tiny.d, tiny.post_norm)


def _gemma4_block(tiny: Tiny, at: str) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    if tiny.ple:
        yield _matrix(tiny, at + "inp_gate.weight", tiny.ple, tiny.d, gain=1.0)
        yield _matrix(tiny, at + "proj.weight", tiny.d, tiny.ple, gain=1.0)
        yield _norm(tiny, at + "post_norm.weight", tiny.d)
    name = at + "layer_output_scale.weight"
    yield name, _drawn(tiny, name, (1,), 0.9, 0.1), Type.F32


def _norms(tiny: Tiny, name: str, width: int) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    yield _norm(tiny, name + ".weight", width)
    if tiny.family == "gpt2":
        yield _bias(tiny, name + ".bias", width)


def _seeds(tiny: Tiny, name: str) -> list[int]:
    return [tiny.seed, zlib.crc32(name.encode())]


def _drawn(tiny: Tiny, name: str, shape: tuple[int, ...], centre: float, deviation: float) -> Floats:
    return np.random.default_rng(_seeds(tiny, name)).normal(centre, deviation, shape).astype(np.float32)


def _norm(tiny: Tiny, name: str, width: int, centre: float = 1.0) -> tuple[str, NDArray[np.generic], Type]:
    return name, _drawn(tiny, name, (width,), centre, 0.1), Type.F32


def _bias(tiny: Tiny, name: str, width: int) -> tuple[str, NDArray[np.generic], Type]:
    return name, _drawn(tiny, name, (width,), 0.0, 0.3), Type.F32


def _matrix(tiny: Tiny, name: str, rows: int, columns: int, *, gain: float) -> tuple[str, NDArray[np.generic], Type]:
    values = _drawn(tiny, name, (rows, columns), 0.0, gain / columns**0.5)
    kind = tiny.type_of(name)
    return name, quantised(values, kind, _seeds(tiny, "blocks of " + name)), Type[kind]
