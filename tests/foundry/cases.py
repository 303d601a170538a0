"""The tiny llamas whose states are recorded: each covers what the others do not."""

from typing import Any

TINY_CASES: dict[str, dict[str, Any]] = {
    "heads-1-1": {"seed": 1, "n_heads": 4, "n_kv": 4},
    "heads-8-1-tied-rope-freqs": {"seed": 2, "n_heads": 8, "n_kv": 1, "tied": True, "rope_freqs": True},
    "key-length-odd-vocab": {"seed": 3, "n_heads": 4, "key_length": 24, "vocab": 517, "rope_base": 500000.0},
    "f16": {"seed": 4, "quant": "F16", "ffn": 160},
    "bf16": {"seed": 5, "quant": "BF16", "tied": True, "eps": 1e-3},
    "q8_0": {"seed": 16, "quant": "Q8_0", "vocab": 387},
    "q4_0": {"seed": 7, "quant": "Q4_0", "n_heads": 4, "tied": True},
    "q4_1": {"seed": 8, "quant": "Q4_1", "n_layers": 2},
    "q4_k-q6_k": {
        "seed": 9, "quant": {"": "Q4_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "output.weight": "Q6_K"},
        "d": 256, "ffn": 512, "n_layers": 2, "vocab": 300,
    },
    "q6_k": {"seed": 10, "quant": "Q6_K", "d": 256, "ffn": 256, "n_layers": 2, "n_heads": 4, "n_kv": 1, "vocab": 300},
    "mixed": {
        "seed": 11, "rope_freqs": True, "vocab": 401,
        "quant": {"": "Q8_0", "attn_q": "Q4_0", "attn_k": "F16", "attn_v": "BF16", "ffn_gate": "Q4_1", "embd": "F32"},
    },
}  # fmt: skip
CONTEXT = 640
PROMPT_LENGTHS = (1, 2, 33, 70, 530)
GREEDY_STEPS = 12
