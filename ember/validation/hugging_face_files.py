"""A GGUF file in transformers' words: the arguments of its configurations, the names and layouts of its tensors.

Read from the file's own keys by this module alone, so that a key that Ember misreads shows as a difference.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

from ember.errors import UnsupportedError
from ember.gguf import GGUFFile, StringArray
from ember.gguf.decode import decode

GPT2_NAMES: Final = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
    "token_embd": "wte",
    "position_embd": "wpe",
    "output_norm": "ln_f",
}
NAMES: Final = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "embed_tokens",
    "output_norm": "norm",
}
GEMMA_NAMES: Final = NAMES | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
    "per_layer_token_embd": "embed_tokens_per_layer",
    "per_layer_model_proj": "per_layer_model_projection",
    "per_layer_proj_norm": "per_layer_projection_norm",
}


class Translated:
    """Keys and float64 tensors of one file, as transformers wants them."""

    def __init__(self, file: GGUFFile) -> None:
        """Decode every tensor. Raises UnsupportedError for what transformers' models are not told."""
        self.path = file.path
        self.family = str(file.metadata["general.architecture"])
        self.keys = _keys(file, self.family)
        self.weights: Mapping[str, torch.Tensor] = {name: _decoded(file, name) for name in file.tensors}
        self._check_factors()

    def _check_factors(self) -> None:
        """Frequency factors are not carried over; Gemma 4's say what its configuration says in other words."""
        factors = self.weights.get("rope_freqs.weight")
        if factors is None:
            return
        quarter = len(factors) // 4
        proportional = bool((factors[:quarter] == 1).all() and (factors[quarter:] > 1e29).all())
        if self.family != "gemma4" or not proportional:
            raise UnsupportedError(
                f"{self.path}: rope_freqs.weight is not carried over to transformers; "
                "validate this file against llama.cpp"
            )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the family's configuration."""
        made = {"gpt2": self._gpt2, "gemma3": self._gemma3, "gemma4": self._gemma4}.get(self.family, self._plain)
        return made()

    def state(self, made: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Rename, split and turn the file's tensors into those of transformers, and miss none that it wants."""
        wanted = {name for name, _ in made.named_parameters()} | {n for n, _ in made.named_buffers() if "layer_s" in n}
        for name, values in self._split():
            target = self._name(name)
            if target in wanted:
                wanted.remove(target)
                yield target, self._stored(target, values)
        if wanted:
            raise UnsupportedError(f"{self.path}: no tensor for {sorted(wanted)[:5]}")

    def _split(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Take fused q, k and v apart, where transformers has three."""
        heads, head = self.keys["attention.head_count"], self._head_dim()
        for name, values in self.weights.items():
            if "attn_qkv" not in name or self.family == "gpt2":
                yield name, values
                continue
            kv = (len(values) - heads * head) // 2
            for part, piece in zip("qkv", values.split([heads * head, kv, kv]), strict=True):
                yield name.replace("attn_qkv", "attn_" + part), piece

    def _name(self, name: str) -> str:
        if name.endswith("layer_output_scale.weight"):
            return f"layers.{name.split('.')[1]}.layer_scalar"
        names = {"gpt2": GPT2_NAMES}.get(self.family, GEMMA_NAMES if self.family.startswith("gemma") else NAMES)
        *block, kind, suffix = name.split(".")
        before = f"{'h' if self.family == 'gpt2' else 'layers'}.{block[1]}." if block else ""
        return f"{before}{names.get(kind, kind)}.{suffix}"

    def _stored(self, target: str, values: torch.Tensor) -> torch.Tensor:
        if self.family == "gpt2" and ".c_" in target and target.endswith("weight"):
            return values.T.contiguous()
        if self.family == "gemma3" and "norm" in target:
            return values - 1.0  # the file's norms hold the + 1 already
        if self.family == "llama" and ("q_proj" in target or "k_proj" in target):
            rows, columns = values.shape
            pairs = values.reshape(rows // self._head_dim(), self._head_dim() // 2, 2, columns)
            return pairs.swapaxes(1, 2).reshape(rows, columns).contiguous()  # undo the converter's permutation
        return values

    def _head_dim(self) -> int:
        key = self.keys.get("attention.key_length")
        return int(key or self.keys["embedding_length"] // self.keys["attention.head_count"])

    def _gpt2(self) -> dict[str, Any]:
        return {
            "vocab_size": len(self.weights["token_embd.weight"]),
            "n_positions": self.keys["context_length"],
            "n_embd": self.keys["embedding_length"],
            "n_layer": self.keys["block_count"],
            "n_head": self.keys["attention.head_count"],
            "n_inner": self.keys["feed_forward_length"],
            "layer_norm_epsilon": self.keys["attention.layer_norm_epsilon"],
        }

    def _plain(self) -> dict[str, Any]:
        return {
            "vocab_size": len(self.weights["token_embd.weight"]),
            "hidden_size": self.keys["embedding_length"],
            "intermediate_size": _one(self.keys["feed_forward_length"]),
            "num_hidden_layers": self.keys["block_count"],
            "num_attention_heads": self.keys["attention.head_count"],
            "num_key_value_heads": _one(self.keys.get("attention.head_count_kv", self.keys["attention.head_count"])),
            "head_dim": self._head_dim(),
            "rms_norm_eps": self.keys["attention.layer_norm_rms_epsilon"],
            "max_position_embeddings": self.keys["context_length"],
            "rope_parameters": self._rope(),
        }

    def _rope(self) -> dict[str, Any]:
        base = {"rope_theta": self.keys.get("rope.freq_base", 10000.0)}
        if self.keys.get("rope.scaling.type") == "linear":
            return {"rope_type": "linear", "factor": self.keys["rope.scaling.factor"], **base}
        return {"rope_type": "default", **base}

    def _sliding(self) -> list[bool]:
        layers = self.keys["block_count"]
        if not self.keys.get("attention.sliding_window"):
            return [False] * layers
        pattern = self.keys.get("attention.sliding_window_pattern", 6)
        return pattern if isinstance(pattern, list) else [layer % pattern != pattern - 1 for layer in range(layers)]

    def _windows(self, full: dict[str, Any]) -> dict[str, Any]:
        windowed = {"rope_type": "default", "rope_theta": self.keys.get("rope.freq_base_swa", 10000.0)}
        return {
            "sliding_window": self.keys.get("attention.sliding_window") or 1,  # of no effect where no layer slides
            "layer_types": ["sliding_attention" if slides else "full_attention" for slides in self._sliding()],
            "rope_parameters": {"full_attention": full, "sliding_attention": windowed},
        }

    def _gemma3(self) -> dict[str, Any]:
        return self._plain() | self._windows(self._rope()) | {"query_pre_attn_scalar": self._head_dim()}

    def _gemma4(self) -> dict[str, Any]:
        own = self.keys["block_count"] - self.keys.get("attention.shared_kv_layers", 0)
        ffn, kv = self._per_layer("feed_forward_length"), self._per_layer("attention.head_count_kv")
        sliding = self._sliding()
        full = {layer: {"head_dim": self._head_dim(), "num_key_value_heads": kv[layer]} for layer in range(len(kv))}
        proportional = {"rope_type": "proportional", "partial_rotary_factor": 0.25, **self._rope_base()}
        return (
            self._plain()
            | self._windows(proportional)
            | {
                "head_dim": self.keys["attention.key_length_swa"],
                "num_key_value_heads": kv[sliding.index(True)],
                "intermediate_size": ffn[0],
                "use_double_wide_mlp": ffn[-1] == 2 * ffn[0],
                "num_kv_shared_layers": self.keys["block_count"] - own,
                "hidden_size_per_layer_input": self.keys["embedding_length_per_layer_input"],
                "vocab_size_per_layer_input": len(self.weights["token_embd.weight"]),
                "attention_k_eq_v": True,
                "per_layer_config": {layer: made for layer, made in full.items() if not sliding[layer]},
            }
        )

    def _rope_base(self) -> dict[str, float]:
        return {"rope_theta": self.keys.get("rope.freq_base", 10000.0)}

    def _per_layer(self, key: str) -> list[int]:
        found = self.keys[key]
        return found if isinstance(found, list) else [found] * self.keys["block_count"]


def _keys(file: GGUFFile, family: str) -> dict[str, Any]:
    """Return the metadata without the family's prefix, arrays of numbers as lists, without vocabularies."""
    plain = {
        key.removeprefix(family + "."): value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in file.metadata.items()
        if not isinstance(value, StringArray)
    }
    return plain


def _decoded(file: GGUFFile, name: str) -> torch.Tensor:
    info = file.tensors[name]
    values = np.empty(info.shape, np.float32)
    decode(file.raw(name), info.type, values)
    return torch.from_numpy(values.astype(np.float64))


def _one(value: Any) -> int:
    return int(value[0]) if isinstance(value, list) else int(value)
