"""Models for timing and memory: SmolLM2 as Q8_0, and the shape of a 1B model with random blocks (never committed).

python -m tests.foundry.requantise q8_0 SMOLLM2.gguf OUT.gguf
python -m tests.foundry.requantise big OUT.gguf
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from tests.foundry.files import recode, write_gguf
from tests.foundry.tiny import Shape, model_keys, tokenizer_keys

Q8_0_FILE_TYPE = 7
_BLOCK, _BLOCK_BYTES = 32, 34
_QUANT_DEVIATION = 73.3  # of the integers -127..127, all as likely


def to_q8_0(source: str | Path, target: str | Path) -> Path:
    """Decode every matrix and quantise it again as Q8_0 (vectors and floats of one dimension stay as they are)."""

    def encode(_: str, decoded: NDArray[np.float32], old: Type) -> Type:
        return Type.Q8_0 if decoded.ndim > 1 and decoded.shape[-1] % _BLOCK == 0 else old

    return recode(source, target, encode, file_type=Q8_0_FILE_TYPE)


def big_llama(
    path: str | Path,
    *,
    seed: int = 0,
    n_layers: int = 16,
    d: int = 2048,
    ffn: int = 8192,
    n_heads: int = 32,
    n_kv: int = 8,
    vocab: int = 32000,
) -> Path:
    """Write the shape of Llama 3.2 1B in Q8_0 within seconds: the blocks are drawn as bytes, nothing is quantised."""
    shape = Shape(
        seed=seed, n_layers=n_layers, d=d, n_heads=n_heads, n_kv=n_kv, head_dim=d // n_heads, ffn=ffn, vocab=vocab,
        tied=True, rope_freqs=False, context=4096, rope_base=500000.0, eps=1e-5, quant={"": "Q8_0"},
    )  # fmt: skip
    keys = model_keys(shape, explicit_head=False) | tokenizer_keys(vocab, "gpt-2", add_bos=None)
    return write_gguf(path, keys, _big_tensors(shape))


def _big_tensors(shape: Shape) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    rng = np.random.default_rng(shape.seed)
    narrow = shape.n_kv * shape.head_dim
    matrices = {
        "attn_q": (shape.d, shape.d), "attn_k": (narrow, shape.d), "attn_v": (narrow, shape.d),
        "attn_output": (shape.d, shape.d), "ffn_gate": (shape.ffn, shape.d), "ffn_up": (shape.ffn, shape.d),
        "ffn_down": (shape.d, shape.ffn),
    }  # fmt: skip
    yield "token_embd.weight", _q8_0_rows(rng, shape.vocab, shape.d, deviation=1.0), Type.Q8_0
    yield "output_norm.weight", rng.normal(0, 3 / shape.d**0.5, shape.d).astype(np.float32), Type.F32
    for layer in range(shape.n_layers):
        for norm in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{norm}.weight", np.ones(shape.d, np.float32), Type.F32
        for name, (rows, columns) in matrices.items():
            blocks = _q8_0_rows(rng, rows, columns, deviation=columns**-0.5)
            yield f"blk.{layer}.{name}.weight", blocks, Type.Q8_0


def _q8_0_rows(rng: np.random.Generator, rows: int, columns: int, *, deviation: float) -> NDArray[np.uint8]:
    """Draw [rows, bytes of a row]: a half-precision scale and 32 signed bytes a block."""
    blocks = np.empty((rows * columns // _BLOCK, _BLOCK_BYTES), np.uint8)
    blocks[:, :2] = np.array([deviation / _QUANT_DEVIATION], "<f2").view(np.uint8)
    blocks[:, 2:] = np.frombuffer(rng.bytes(rows * columns), np.uint8).reshape(-1, _BLOCK)
    quants = blocks[:, 2:].view(np.int8)
    np.maximum(quants, -127, out=quants)
    return blocks.reshape(rows, -1)


def main() -> None:
    match sys.argv[1:]:
        case ["q8_0", source, target]:
            print(to_q8_0(source, target))
        case ["big", target]:
            print(big_llama(target))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
