"""A GGUF file of the llama family as a transformers model, from our own reading (needs the extra `reference`).

transformers' own GGUF loader wants `accelerate`, reads a vocabulary in half a minute and ignores rope_freqs.
"""

from pathlib import Path
from typing import Any

import gguf
import torch
from gguf import GGUFReader
from transformers import LlamaConfig, LlamaModel

_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def transformers_llama(path: str | Path) -> LlamaModel:
    """Decode every tensor to float32 and load it into a LlamaModel (without a head, RoPE as in the metadata)."""
    reader = GGUFReader(str(path))
    if any(tensor.name == "rope_freqs.weight" for tensor in reader.tensors):
        raise ValueError(f"{path}: rope_freqs.weight is not carried over")
    model = LlamaModel(_config(reader)).eval()
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    state = {}
    for tensor in reader.tensors:
        values = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        kind = tensor.name.removesuffix(".weight").split(".")[-1]
        state[_name(tensor.name)] = _split_halves(values, heads[kind]) if kind in heads else values
    state.pop("output", None)
    model.load_state_dict(state)
    return model


def _config(reader: GGUFReader) -> LlamaConfig:
    def key(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    return LlamaConfig(
        hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"),
        num_hidden_layers=key("block_count"),
        num_attention_heads=key("attention.head_count"),
        num_key_value_heads=key("attention.head_count_kv"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=key("context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
        vocab_size=next(int(t.shape[1]) for t in reader.tensors if t.name == "token_embd.weight"),
    )


def _name(tensor: str) -> str:
    match tensor.removesuffix(".weight").split("."):
        case ["blk", layer, kind]:
            return f"layers.{layer}.{_NAMES[kind]}.weight"
        case ["token_embd"]:
            return "embed_tokens.weight"
        case ["output_norm"]:
            return "norm.weight"
        case [other]:
            return other
    raise ValueError(f"{tensor}: not a tensor of the llama family")


def _split_halves(values: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the converter's permutation: GGUF rotates neighbours, transformers the halves of a head."""
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns).contiguous()
