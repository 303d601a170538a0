"""The llama family in torch, enough to train sarf-nano: tied head, GQA, SwiGLU, RoPE on neighbouring pairs."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Shape:
    """Hyper-parameters; `d`, `ffn` and `n_kv * head_dim` are multiples of 32 so that Q8_0 blocks fit."""

    vocab: int
    n_layers: int = 5
    d: int = 128
    n_heads: int = 4
    n_kv: int = 2
    ffn: int = 352
    context: int = 256
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d // self.n_heads


def rope_table(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotation angles, each [length, head_dim / 2]."""
    frequencies = shape.rope_base ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate neighbouring pairs of the last axis: [..., length, head_dim]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), -1).flatten(-2)


class Block(nn.Module):
    """One layer: attention and SwiGLU, each behind an RMS norm and added to the residual stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        narrow = shape.n_kv * shape.head_dim
        self.attn_norm = nn.RMSNorm(shape.d, eps=shape.eps)
        self.attn_q = nn.Linear(shape.d, shape.d, bias=False)
        self.attn_k = nn.Linear(shape.d, narrow, bias=False)
        self.attn_v = nn.Linear(shape.d, narrow, bias=False)
        self.attn_output = nn.Linear(shape.d, shape.d, bias=False)
        self.ffn_norm = nn.RMSNorm(shape.d, eps=shape.eps)
        self.ffn_gate = nn.Linear(shape.d, shape.ffn, bias=False)
        self.ffn_up = nn.Linear(shape.d, shape.ffn, bias=False)
        self.ffn_down = nn.Linear(shape.ffn, shape.d, bias=False)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """Hidden states [batch, length, d] after this layer."""
        x = x + self._attention(self.attn_norm(x), rope)
        normed = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(normed)) * self.ffn_up(normed))

    def _attention(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        batch, length, _ = x.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, length, -1, self.shape.head_dim).transpose(1, 2)

        q, k = rotate(heads(self.attn_q(x)), *rope), rotate(heads(self.attn_k(x)), *rope)
        mixed = F.scaled_dot_product_attention(q, k, heads(self.attn_v(x)), is_causal=True, enable_gqa=True)
        return self.attn_output(mixed.transpose(1, 2).reshape(batch, length, self.shape.d))


class SarfNano(nn.Module):
    """Token ids [batch, length] to logits [batch, length, vocab]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab, shape.d)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.output_norm = nn.RMSNorm(shape.d, eps=shape.eps)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                last = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * shape.n_layers) ** 0.5 if last else 0.02)
        nn.init.normal_(self.token_embd.weight, std=0.05)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits at every position."""
        return F.linear(self.hidden(ids), self.token_embd.weight)

    def hidden(self, ids: Tensor) -> Tensor:
        """Normed hidden states after the last layer."""
        rope = rope_table(self.shape, ids.shape[1])
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, rope)
        return self.output_norm(x)

    @torch.no_grad()
    def greedy(self, ids: Tensor, steps: int) -> Tensor:
        """Continue prompts of equal length [batch, length] by `steps` ids each."""
        for _ in range(steps):
            ids = torch.cat(
                (ids, F.linear(self.hidden(ids)[:, -1], self.token_embd.weight).argmax(-1, keepdim=True)), 1
            )
        return ids[:, -steps:]
