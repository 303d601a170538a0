"""Every family by Hugging Face transformers in float64, from a GGUF file (reference Python only).

transformers computes norms, softmax and RoPE angles in float32 whatever the model's type; here its name for float32
stands for float64, so that every product, norm and angle is one of float64.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGUFReader
from numpy.typing import NDArray
from transformers import (
    Gemma3TextConfig,
    Gemma3TextModel,
    Gemma4TextConfig,
    Gemma4TextModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    Qwen2Config,
    Qwen2Model,
    Qwen3Config,
    Qwen3Model,
)

from tests.foundry.files import read_keys

Doubles = NDArray[np.float64]
MODELS: dict[str, tuple[type, type]] = {
    "gpt2": (GPT2Config, GPT2Model),
    "llama": (LlamaConfig, LlamaModel),
    "qwen2": (Qwen2Config, Qwen2Model),
    "qwen3": (Qwen3Config, Qwen3Model),
    "gemma3": (Gemma3TextConfig, Gemma3TextModel),
    "gemma4": (Gemma4TextConfig, Gemma4TextModel),
}
LAYERS_OF_27B = 62
"""Gemma 3 27B's config says that scores are scaled by D / H, which no key of a GGUF file does."""
GPT2_NAMES = {
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
NAMES = {
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
GEMMA_NAMES = NAMES | {
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


@contextmanager
def all_float64() -> Iterator[None]:
    """Let every float32 that transformers asks for by name be a float64."""
    kept = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept[:3]
        torch.set_default_dtype(kept[3])


@dataclass(slots=True)
class Transformers:
    """One model in float64; `taken` holds what the hooks saw of the last evaluation."""

    path: str | Path
    family: str = ""
    keys: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    model: Any = None
    taken: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reader = GGUFReader(str(self.path))
        keys = {name: value for name, (_, value) in read_keys(reader).items()}
        self.family = keys["general.architecture"]
        self.keys = {name.removeprefix(self.family + "."): value for name, value in keys.items()}
        self.weights = {t.name: _decoded(t) for t in reader.tensors}
        with all_float64():
            self.model = self._built().double().eval()
        self._hook()

    @torch.no_grad()
    def states(self, tokens: Sequence[int]) -> dict[str, Doubles]:
        """Give every key of the goldens at the last token: [(layers,) width]."""
        self.taken = {}
        with all_float64():
            normed = self.model(torch.tensor([list(tokens)]), use_cache=False).last_hidden_state[0, -1]
        layers = range(self.model.config.num_hidden_layers)
        result = {
            key: np.stack([self.taken[key, layer] for layer in layers])
            for key in ("l_out", "attn_contrib", "mlp_contrib")
        }
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        cap = self.keys.get("final_logit_softcapping", 30.0 if self.family == "gemma4" else 0.0)
        logits = head @ normed
        logits = cap * torch.tanh(logits / cap) if cap else logits
        return result | {"h0": self.taken["h0"], "result_norm": normed.numpy(), "logits": logits.numpy()}

    def greedy(self, tokens: Sequence[int], steps: int) -> tuple[list[int], list[float]]:
        """Continue with the highest logit: ids, and at each step its lead over the second."""
        ids, margins = list(tokens), []
        for _ in range(steps):
            logits = self.states(ids)["logits"]
            second, first = np.partition(logits, -2)[-2:]
            margins.append(float(first - second))
            ids.append(int(logits.argmax()))
        return ids[len(tokens) :], margins

    def _built(self) -> Any:
        config, model = MODELS[self.family]
        arguments = {"gpt2": self._gpt2, "gemma3": self._gemma3, "gemma4": self._gemma4}.get(self.family, self._plain)()
        made = model(config(**arguments, attn_implementation="eager"))
        if self.family == "gemma4":
            self._own_values(made)
        made.load_state_dict(dict(self._state(made)), strict=False)
        return made

    def _state(self, made: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Rename, split and turn the file's tensors into those of transformers, and miss none that it wants."""
        wanted = {name for name, _ in made.named_parameters()} | {n for n, _ in made.named_buffers() if "layer_s" in n}
        for name, values in self._split():
            target = self._name(name)
            if target in wanted:
                wanted.remove(target)
                yield target, self._stored(target, values)
        if wanted:
            raise RuntimeError(f"{self.path}: no tensor for {sorted(wanted)[:5]}")

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
        width, heads = self.keys["embedding_length"], self.keys["attention.head_count"]
        scalar = width // heads if self.keys["block_count"] == LAYERS_OF_27B else self._head_dim()
        return self._plain() | self._windows(self._rope()) | {"query_pre_attn_scalar": scalar}

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

    def _own_values(self, made: Any) -> None:
        """Give a full layer its own values where the file has them: transformers has it for all layers or none."""
        for index, layer in enumerate(made.layers):
            values = self.weights.get(f"blk.{index}.attn_v.weight")
            attention = layer.self_attn
            if values is not None and not attention.is_kv_shared_layer and attention.v_proj is None:
                attention.v_proj = torch.nn.Linear(values.shape[1], values.shape[0], bias=False)

    def _hook(self) -> None:
        layers = self.model.h if self.family == "gpt2" else self.model.layers
        layers[0].register_forward_pre_hook(self._take_first, with_kwargs=True)
        for index, layer in enumerate(layers):
            if self.family.startswith("gemma"):
                parts = layer.post_attention_layernorm, layer.post_feedforward_layernorm
            else:
                parts = (layer.attn if self.family == "gpt2" else layer.self_attn), layer.mlp
            for key, part in zip(("attn_contrib", "mlp_contrib", "l_out"), (*parts, layer), strict=True):
                part.register_forward_hook(self._taker((key, index)))

    def _take_first(self, module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        hidden = given[0] if given else named["hidden_states"]
        self.taken["h0"] = hidden[0, -1].numpy().copy()

    def _taker(self, key: tuple[str, int]) -> Any:
        def take(module: Any, given: Any, result: Any) -> None:
            values = result[0] if isinstance(result, tuple) else result
            self.taken[key] = values[0, -1].numpy().copy()

        return take


def _decoded(tensor: Any) -> torch.Tensor:
    return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64))


def _one(value: Any) -> int:
    return int(value[0]) if isinstance(value, list) else int(value)
