"""Decoding speed of every format, NumPy and compiled, beside gguf-py's on the same bytes in the same run.

    python -m tests.bench.bench_decode [values in millions, default 16] [--json]

Figures are GB/s of float32 written, one core, best of five; the output is larger than the caches. gguf-py returns F32
without a copy, so it has no figure there.
"""

import json
import sys
import time
from collections.abc import Callable

import gguf
import numpy as np

from ember.gguf import decode, decode_fast
from ember.gguf.types import DECODED, QUANT_TYPES


def best(run: Callable[[], object], repeats: int = 5) -> float:
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return min(took)


def measure(name: str, values: int) -> dict[str, object]:
    kind = next(kind for kind in QUANT_TYPES.values() if kind.name == name)
    blocks = values // kind.block_size
    raw = np.random.default_rng(0).integers(0, 120, blocks * kind.type_size, dtype=np.uint8)
    out = np.zeros(blocks * kind.block_size, np.float32)
    stored = raw.view(np.float16) if name == "F16" else raw
    number = gguf.GGMLQuantizationType(kind.id)
    gigabytes = out.nbytes / 1e9
    theirs = None if name == "F32" else gigabytes / best(lambda: gguf.quants.dequantize(stored, number))
    return {
        "type": name,
        "gguf_py": theirs,
        "numpy": gigabytes / best(lambda: decode.decode(raw, kind, out)),
        "fast": gigabytes / best(lambda: decode_fast.decode(raw, kind, out)),
        "compiled": name in decode_fast.KERNELS,
    }


def main() -> None:
    numbers = [argument for argument in sys.argv[1:] if argument.isdigit()]
    values = int(numbers[0] if numbers else 16) * 2**20
    rows = [measure(name, values) for name in sorted(DECODED)]
    if "--json" in sys.argv:
        print(json.dumps(rows))
        return
    print(f"{values / 2**20:.0f} M values, GB/s of float32, one core")
    print(f"{'type':8} {'gguf-py':>8} {'numpy':>8} {'fast':>8}")
    for row in rows:
        theirs = f"{row['gguf_py']:8.2f}" if row["gguf_py"] else f"{'-':>8}"
        print(
            f"{row['type']:8} {theirs} {row['numpy']:8.2f} {row['fast']:8.2f}{'' if row['compiled'] else '  (NumPy)'}"
        )


if __name__ == "__main__":
    main()
