"""The tiny models of every family whose states are recorded: each covers what the others do not."""

from dataclasses import dataclass, field
from typing import Any, Final

from tests.foundry.families import Tiny

LENGTHS: Final = (1, 2, 33, 70, 530)
EDGES: Final = (1, 2, 3, 4, 5, 8, 9, 31, 32, 33, 40, 41, 64, 65, 530)
"""Prompts that end around windows of 4, 8 and 33 and around multiples of 32, where tiles begin."""
GREEDY_STEPS: Final = 8
LONGEST_CONTINUED: Final = 600
"""Longer prompts are not continued: float64 would take minutes."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model and the lengths of its prompts; `metadata` sets or removes keys as `tiny_family` does."""

    tiny: Tiny
    lengths: tuple[int, ...] = LENGTHS
    metadata: dict[str, Any] = field(default_factory=dict)


MIXED: Final = {
    "": "Q8_0",
    "attn_q": "Q4_0",
    "attn_k": "F16",
    "attn_v": "Q5_1",
    "ffn_gate": "Q4_1",
    "ffn_up": "BF16",
    "ffn_down": "Q5_0",
    "attn_output": "IQ4_NL",
    "embd": "F32",
}
"""A type for every role; rows must be multiples of 32."""
FLAGS: Final = (True, True, False, True, False, True, True, False)

FAMILY_CASES: Final[dict[str, Case]] = {
    "gpt2": Case(Tiny("gpt2", seed=21, d=48, ffn=192, eps=1e-5)),
    "gpt2-untied-odd-vocab-mixed": Case(
        Tiny("gpt2", seed=22, d=64, n_heads=8, ffn=96, eps=1e-3, tied=False, vocab=317, quant=MIXED | {"ffn_up": "F32"})
    ),
    "llama-fused-linear": Case(
        Tiny("llama", seed=23, d=48, n_heads=6, n_kv=2, fused=True, linear=4.0, tied=False, eps=1e-5)
    ),
    "qwen2-heads-1-1-few-keys": Case(
        Tiny("qwen2", seed=24, n_kv=4, dropped=("attention.head_count_kv", "rope.freq_base"))
    ),
    "qwen2-heads-8-1-untied-mixed": Case(
        Tiny("qwen2", seed=25, d=64, n_heads=8, n_kv=1, ffn=96, tied=False, vocab=317, quant=MIXED)
    ),
    "qwen2-fused": Case(Tiny("qwen2", seed=38, n_layers=2, fused=True)),
    "qwen3-wide-heads": Case(Tiny("qwen3", seed=26, head_dim=24, tied=False, eps=1e-3)),
    "qwen3-heads-8-1-arrays": Case(
        Tiny("qwen3", seed=27, d=64, n_heads=8, n_kv=(1, 1, 1), ffn=(96, 96, 96), vocab=293, quant=MIXED,
             dropped=("attention.key_length", "attention.value_length"))
    ),
    "qwen3-fused-long": Case(
        Tiny("qwen3", seed=28, n_layers=2, n_heads=2, n_kv=1, head_dim=16, fused=True, context=4096), (2, 3100)
    ),
    "gemma3-few-keys": Case(Tiny("gemma3", seed=37, n_layers=7, head_dim=16, rope_base_swa=None), EDGES),
    "gemma3-every-3rd-linear": Case(
        Tiny("gemma3", seed=30, n_layers=6, n_kv=4, head_dim=16, window=4, sliding=3, rope_base=1e6,
             rope_base_swa=20000.0, linear=8.0, tied=False, softcap=20.0),
        EDGES,
    ),
    "gemma3-flags-heads-8-1-mixed": Case(
        Tiny("gemma3", seed=31, n_layers=4, d=64, n_heads=8, n_kv=1, ffn=64, window=33, vocab=317, quant=MIXED,
             sliding=(True, False, True, True)),
        (1, 32, 33, 34, 64, 66, 67, 530),
    ),
    "gemma3-no-window-fused": Case(
        Tiny("gemma3", seed=32, n_layers=2, head_dim=16, fused=True, rope_base_swa=None,
             dropped=("attention.sliding_window",)),
    ),
    "gemma3-62-layers": Case(  # the 27B's number of layers, by which its scale of D / H is known
        Tiny("gemma3", seed=39, n_layers=62, n_heads=2, n_kv=1, head_dim=8, eps=1e-3, post_norm=0.2),
        (2, 33),
    ),
    "gemma3-long": Case(
        Tiny("gemma3", seed=33, n_layers=2, n_heads=2, n_kv=1, head_dim=16, sliding=2, context=4096), (9, 3100)
    ),
    "gemma4-ple-shared-decoys": Case(
        Tiny("gemma4", seed=34, n_layers=8, n_kv=(2, 2, 1, 2, 1, 2, 2, 1), head_dim=16, head_dim_swa=8,
             ffn=(48,) * 5 + (96,) * 3, sliding=FLAGS, ple=16, shared=3, decoys=True, without_v=(4,), softcap=30.0),
        EDGES,
    ),
    "gemma4-plain-few-keys": Case(
        Tiny("gemma4", seed=35, n_layers=6, n_kv=(4, 4, 1, 4, 4, 1), head_dim=16, head_dim_swa=8, window=33,
             sliding=(True, True, False) * 2, without_v=(2, 5), rope_base_swa=None, vocab=317,
             dropped=("attention.shared_kv_layers", "rope.dimension_count", "final_logit_softcapping")),
        (1, 32, 33, 34, 64, 66, 67, 530),
    ),
    "gemma4-ple-shared-mixed": Case(
        Tiny("gemma4", seed=36, n_layers=5, d=64, n_heads=8, n_kv=1, head_dim=8, ffn=64, window=4, ple=32, shared=2,
             sliding=(True, True, False, True, False), softcap=15.0,
             quant=MIXED | {"embd": "Q8_0", "per_layer_model_proj": "F16"},
             dropped=("rope.dimension_count_swa",)),
        (1, 2, 4, 5, 33, 70, 530),
    ),
}  # fmt: skip

PLAIN: Final[dict[str, Tiny]] = {
    # heads of d / n_heads and no groups: an absent optional key's default fits the tensors
    "gpt2": Tiny("gpt2", n_layers=2, context=64, vocab=300, eps=1e-5),
    "llama": Tiny("llama", n_layers=2, n_kv=4, context=64, tied=False, linear=2.0),
    "qwen2": Tiny("qwen2", n_layers=2, n_kv=4, context=64, tied=False),
    "qwen3": Tiny("qwen3", n_layers=2, n_kv=4, context=64, eps=1e-3),
    "gemma3": Tiny("gemma3", n_layers=3, n_kv=4, context=64, window=4, sliding=3, linear=2.0, softcap=20.0),
    "gemma4": Tiny(
        "gemma4", n_layers=4, context=64, window=4, sliding=(True, False, True, False), head_dim=16, head_dim_swa=8,
        n_kv=(2, 1, 2, 1), ffn=(48, 48, 96, 96), ple=8, shared=2, softcap=20.0,
    ),
}  # fmt: skip
"""A small file of each family with every usual key, for tests that take it apart."""
