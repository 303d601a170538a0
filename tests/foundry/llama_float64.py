"""The llama family in float64 and as few lines as possible: a third opinion when Ember and llama.cpp disagree.

In float32 the same lines say how far plain rounding takes one from float64 on a given model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

from tests.foundry.files import read_keys

Doubles = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Float64Llama:
    """Weights in float64 by name, and metadata without the `llama.` in front."""

    weights: dict[str, Doubles]
    keys: dict[str, Any]

    @classmethod
    def read(cls, path: str | Path) -> "Float64Llama":
        reader = GGUFReader(str(path))
        weights = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
        return cls(weights, {name.removeprefix("llama."): value for name, (_, value) in read_keys(reader).items()})

    def in_float32(self) -> "Float64Llama":
        """Give the same formulas over float32 weights: every product and sum is then rounded to float32."""
        return replace(self, weights={name: values.astype(np.float32) for name, values in self.weights.items()})

    def states(self, tokens: Sequence[int]) -> dict[str, Doubles]:
        """Give every key of the goldens for all positions: [T, layers, d]; h0, result_norm and logits [T, width]."""
        hidden = self.weights["token_embd.weight"][list(tokens)]
        taken: dict[str, Any] = {"h0": hidden, "l_out": [], "attn_contrib": [], "mlp_contrib": []}
        for layer in range(self.keys["block_count"]):
            attended = self._attention(layer, self._norm(hidden, f"blk.{layer}.attn_norm.weight"))
            hidden = hidden + attended
            gated = self._mlp(layer, self._norm(hidden, f"blk.{layer}.ffn_norm.weight"))
            hidden = hidden + gated
            for key, value in (("l_out", hidden), ("attn_contrib", attended), ("mlp_contrib", gated)):
                taken[key].append(value)
        normed = self._norm(hidden, "output_norm.weight")
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        stacked = {key: np.stack(taken[key], axis=1) for key in ("l_out", "attn_contrib", "mlp_contrib")}
        return {"h0": taken["h0"], "result_norm": normed, "logits": normed @ head.T} | stacked

    def _norm(self, x: Doubles, name: str) -> Doubles:
        eps = self.keys["attention.layer_norm_rms_epsilon"]
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * self.weights[name]

    def _linear(self, layer: int, name: str, x: Doubles) -> Doubles:
        return x @ self.weights[f"blk.{layer}.{name}.weight"].T

    def _mlp(self, layer: int, x: Doubles) -> Doubles:
        gate = self._linear(layer, "ffn_gate", x)
        return self._linear(layer, "ffn_down", gate / (1 + np.exp(-gate)) * self._linear(layer, "ffn_up", x))

    def _attention(self, layer: int, x: Doubles) -> Doubles:
        heads, shared = self.keys["attention.head_count"], self.keys["attention.head_count_kv"]
        split = (len(x), -1, self.keys["rope.dimension_count"])
        q = self._rotated(self._linear(layer, "attn_q", x).reshape(split))
        k = self._rotated(self._linear(layer, "attn_k", x).reshape(split)).repeat(heads // shared, axis=1)
        v = self._linear(layer, "attn_v", x).reshape(split).repeat(heads // shared, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / split[-1] ** 0.5
        scores[:, np.triu(np.ones((len(x), len(x)), bool), 1)] = -np.inf
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        return self._linear(layer, "attn_output", np.einsum("hqk,khd->qhd", chances, v).reshape(len(x), -1))

    def _rotated(self, x: Doubles) -> Doubles:
        """RoPE on the pairs (2i, 2i + 1); rope_freqs divides the frequencies."""
        rates = self.keys["rope.freq_base"] ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
        rates = rates / self.weights.get("rope_freqs.weight", 1.0)
        angle = (np.arange(len(x))[:, None] * rates)[:, None, :]
        cosine, sine = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = [even * cosine - odd * sine, even * sine + odd * cosine]
        return np.stack(turned, axis=-1).reshape(x.shape)
