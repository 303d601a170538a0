"""What a typical mistake looks like: each is larger than the tolerance by two orders, so that no golden can hide it.

A mistake is made in the file, not in the code: the edited file runs as the mistaken code would run the right one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType as Value

import ember
from ember.tolerances import TOLERANCES
from tests.foundry.families import Edit, Tiny, family_tensors, tiny_family
from tests.foundry.families_cases import FAMILY_CASES
from tests.foundry.goldens import Golden, disagreement

RECORDED = Path(__file__).parents[1] / "goldens" / "recorded"
LONGEST = 100
CLEAR = 100 * TOLERANCES["golden_site"].bound


@dataclass(frozen=True, slots=True)
class Mistake:
    """A case and how its file is changed; `edits` maps parts of tensor names to what becomes of the tensor."""

    what: str
    case: str
    keys: dict[str, Any] = field(default_factory=dict)
    edits: dict[str, Edit] = field(default_factory=dict)
    site: str = "after_layer"


def zeros(stored: np.ndarray) -> np.ndarray:
    return np.zeros_like(stored)


def ones(stored: np.ndarray) -> np.ndarray:
    return np.ones_like(stored)


def one_more(stored: np.ndarray) -> np.ndarray:
    return stored + 1


def shifted(stored: np.ndarray) -> np.ndarray:
    return np.roll(stored, 1, axis=0)


def third_zeroed(which: int) -> Edit:
    """Drop the bias of q (0) or v (2) out of the fused one; k's changes nothing, since a softmax ignores it."""

    def edit(stored: np.ndarray) -> np.ndarray:
        parts = np.split(stored.copy(), 3)
        parts[which][:] = 0
        return np.concatenate(parts)

    return edit


def u32(value: int) -> tuple[Value, int]:
    return Value.UINT32, value


def f32(value: float) -> tuple[Value, float]:
    return Value.FLOAT32, value


GEMMA3, LINEAR, GEMMA4, PLAIN4 = (
    "gemma3-few-keys", "gemma3-every-3rd-linear", "gemma4-ple-shared-decoys", "gemma4-plain-few-keys",
)  # fmt: skip
WINDOW3, WINDOW4 = "gemma3.attention.sliding_window", "gemma4.attention.sliding_window"
MISTAKES = (
    Mistake("no q bias", "gpt2", edits={"attn_qkv.bias": third_zeroed(0)}),
    Mistake("no v bias", "gpt2", edits={"attn_qkv.bias": third_zeroed(2)}),
    Mistake("no output bias", "gpt2", edits={"attn_output.bias": zeros}),
    Mistake("no ffn_up bias", "gpt2", edits={"ffn_up.bias": zeros}),
    Mistake("no ffn_down bias", "gpt2", edits={"ffn_down.bias": zeros}),
    Mistake("no attn_norm bias", "gpt2", edits={"attn_norm.bias": zeros}),
    Mistake("no ffn_norm bias", "gpt2", edits={"ffn_norm.bias": zeros}),
    Mistake("no output_norm bias", "gpt2", edits={"output_norm.bias": zeros}, site="after_logits"),
    Mistake("positions off by one", "gpt2", edits={"position_embd.weight": shifted}),
    Mistake("no linear scaling", "llama-fused-linear", keys={"llama.rope.scaling.type": (Value.STRING, "none")}),
    Mistake("another RoPE base", "llama-fused-linear", keys={"llama.rope.freq_base": f32(10000.0)}),
    Mistake("no q bias", "qwen2-heads-1-1-few-keys", edits={"attn_q.bias": zeros}),
    Mistake("no k bias", "qwen2-heads-1-1-few-keys", edits={"attn_k.bias": zeros}),
    Mistake("no v bias", "qwen2-heads-1-1-few-keys", edits={"attn_v.bias": zeros}),
    Mistake("another RoPE base", "qwen2-heads-1-1-few-keys", keys={"qwen2.rope.freq_base": f32(1000000.0)}),
    Mistake("no q norm weight", "qwen3-wide-heads", edits={"attn_q_norm": ones}),
    Mistake("no k norm weight", "qwen3-wide-heads", edits={"attn_k_norm": ones}),
    Mistake("another epsilon", "qwen3-wide-heads", keys={"qwen3.attention.layer_norm_rms_epsilon": f32(1e-6)}),
    Mistake("window one short", GEMMA3, keys={WINDOW3: u32(7)}),
    Mistake("window one long", GEMMA3, keys={WINDOW3: u32(9)}),
    Mistake("no window", GEMMA3, keys={WINDOW3: u32(640)}),
    Mistake("another pattern", GEMMA3, keys={"gemma3.attention.sliding_window_pattern": u32(3)}),
    Mistake("one RoPE base for all", GEMMA3, keys={"gemma3.rope.freq_base_swa": f32(100000.0)}),
    Mistake("the windows' RoPE base for all", GEMMA3, keys={"gemma3.rope.freq_base": f32(10000.0)}),
    Mistake("one added to the norms again", GEMMA3, edits={"attn_norm": one_more}),
    Mistake("no post-norm weight", GEMMA3, edits={"post_attention_norm": ones}),
    Mistake("scores divided by sqrt(E)", "gemma3-62-layers", edits={"attn_q_norm": lambda stored: stored * 2**0.5}),
    Mistake("no linear scaling", LINEAR, keys={"gemma3.rope.scaling.factor": f32(1.0)}),
    Mistake("the windows' default RoPE base", LINEAR, keys={"gemma3.rope.freq_base_swa": None}),
    Mistake("no softcap", LINEAR, keys={"gemma3.final_logit_softcapping": None}, site="after_logits"),
    Mistake("ids of the head off by one", LINEAR, edits={"output.weight": shifted}, site="after_logits"),
    Mistake("window one short", GEMMA4, keys={WINDOW4: u32(7)}),
    Mistake("window one long", GEMMA4, keys={WINDOW4: u32(9)}),
    Mistake("window one long", PLAIN4, keys={WINDOW4: u32(34)}),
    Mistake("all dimensions turned", GEMMA4, edits={"rope_freqs": ones}),
    Mistake("one RoPE base for all", GEMMA4, keys={"gemma4.rope.freq_base_swa": f32(100000.0)}),
    Mistake("the windows' RoPE base for all", GEMMA4, keys={"gemma4.rope.freq_base": f32(10000.0)}),
    Mistake("no output scale", GEMMA4, edits={"layer_output_scale": ones}),
    Mistake("no softcap", GEMMA4, keys={"gemma4.final_logit_softcapping": f32(1e6)}, site="after_logits"),
    Mistake("the default softcap left out", PLAIN4, keys={"gemma4.final_logit_softcapping": f32(1e6)},
            site="after_logits"),
    Mistake("no per-layer embedding of the token", GEMMA4, edits={"per_layer_token_embd": zeros}),
    Mistake("no projected per-layer input", GEMMA4, edits={"per_layer_proj_norm": zeros}),
    Mistake("no per-layer block", GEMMA4, edits={"post_norm.weight": zeros}),
    Mistake("scores divided by sqrt(E)", GEMMA4, edits={"attn_q_norm": lambda stored: stored / stored.size**0.5}),
    Mistake("no k norm weight", GEMMA4, edits={"attn_k_norm": ones}),
)  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.case}: {mistake.what}")
def test_the_mistake_shows(mistake: Mistake, tmp_path: Path) -> None:
    tiny = FAMILY_CASES[mistake.case].tiny
    path = tiny_family(tmp_path / "m.gguf", tiny, metadata=mistake.keys, edited=edits_of(tiny, mistake.edits))
    worst = distance(path, mistake.case, mistake.site)
    assert worst > CLEAR, f"max|d|/rms {worst:.1e}"


def test_what_cannot_matter_does_not_show(tmp_path: Path) -> None:
    """A softmax ignores the bias of the keys where positions do not turn them; decoys are read by nobody."""
    for case, edits in (("gpt2", {"attn_qkv.bias": third_zeroed(1)}), (GEMMA4, {"blk.5.attn_v.weight": zeros})):
        path = tiny_family(
            tmp_path / "m.gguf", FAMILY_CASES[case].tiny, edited=edits_of(FAMILY_CASES[case].tiny, edits)
        )
        assert distance(path, case, "after_layer") < TOLERANCES["golden_site"].bound


def edits_of(tiny: Tiny, edits: dict[str, Callable[[np.ndarray], np.ndarray]]) -> dict[str, Edit]:
    """Give each tensor whose name contains a key of `edits` that edit."""
    names = [name for name, _, _ in family_tensors(tiny)]
    found = {name: edit for part, edit in edits.items() for name in names if part in name}
    assert bool(found) == bool(edits)
    return found


def distance(path: Path, case: str, site: str) -> float:
    """max|d|/rms of a site from the values recorded of the right model, over prompts that are not long."""
    golden = Golden.read(RECORDED / f"family-{case}.npz")
    short = [index for index, prompt in enumerate(golden.prompts) if len(prompt) <= LONGEST]
    with ember.open(path, route="reference", threads=1) as model:
        found = model.capture(tokens=[golden.prompts[index] for index in short], site=site, layers="all")[site]
    return float(disagreement(found, golden.sites()[site][short]).max())
