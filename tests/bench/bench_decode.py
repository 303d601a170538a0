"""Decoding speed of every format, NumPy and compiled, beside gguf-py's on the same bytes in the same run.

    python -m tests.bench.bench_decode [values in millions, default 16] [--json]

Figures are GB/s of float32 written a second of processor time of the one thread that runs (so company on the machine
counts little), best of five, the three contenders in turns. gguf-py returns F32 without a copy: no figure there.
"""

import json
import sys
import time
from collections.abc import Callable

import gguf
import numpy as np

from ember.gguf import decode, decode_fast
from ember.gguf.types import DECODED, TYPES_BY_NAME


def best(contenders: dict[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """Run all contenders in turns; give the least processor seconds of each."""
    took: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.thread_time()
            run()
            took[name].append(time.thread_time() - start)
    return {name: min(times) for name, times in took.items()}


def measure(name: str, values: int) -> dict[str, object]:
    kind = TYPES_BY_NAME[name]
    blocks = values // kind.block_size
    raw = np.random.default_rng(0).integers(0, 120, blocks * kind.type_size, dtype=np.uint8)
    out = np.zeros(blocks * kind.block_size, np.float32)
    stored = raw.view(np.float16) if name == "F16" else raw
    number = gguf.GGMLQuantizationType(kind.id)
    contenders: dict[str, Callable[[], object]] = {
        "gguf_py": lambda: gguf.quants.dequantize(stored, number),
        "numpy": lambda: decode.decode(raw, kind, out),
        "fast": lambda: decode_fast.decode(raw, kind, out),
    }
    if name == "F32":
        del contenders["gguf_py"]
    speeds = {key: out.nbytes / 1e9 / seconds for key, seconds in best(contenders).items()}
    return {"type": name, "gguf_py": None, **speeds, "compiled": name in decode_fast.KERNELS}


def main() -> None:
    numbers = [argument for argument in sys.argv[1:] if argument.isdigit()]
    values = int(numbers[0] if numbers else 16) * 2**20
    rows = [measure(name, values) for name in sorted(DECODED)]
    if "--json" in sys.argv:
        print(json.dumps(rows))
        return
    print(f"{values / 2**20:.0f} M values, GB/s of float32, one core's processor time")
    print(f"{'type':8} {'gguf-py':>8} {'numpy':>8} {'fast':>8}")
    for row in rows:
        theirs = f"{row['gguf_py']:8.2f}" if row["gguf_py"] else f"{'-':>8}"
        print(
            f"{row['type']:8} {theirs} {row['numpy']:8.2f} {row['fast']:8.2f}{'' if row['compiled'] else '  (NumPy)'}"
        )


if __name__ == "__main__":
    main()
