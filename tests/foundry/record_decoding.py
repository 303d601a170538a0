"""Record how ggml's own C code decodes every type: `python -m tests.foundry.record_decoding` (extra `reference`).

Writes digests of the floats, and of the blocks that they came from, to tests/ember/gguf/recorded/ggml_decoding.json.
Ember follows gguf-py; these say that gguf-py, ggml and Ember agree bit for bit.
"""

import ctypes
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.gguf.types import DECODED, TYPES_BY_NAME, QuantType
from tests.foundry.blocks import SCALES_AT, put_halves

RECORD = Path(__file__).parents[1] / "ember" / "gguf" / "recorded" / "ggml_decoding.json"
BLOCKS = 2000
RECORDED = sorted(DECODED - {"F32"})


def seeded_blocks(kind: QuantType) -> NDArray[np.uint8]:
    """Random blocks as bytes: finite half-precision scales, subnormal ones among them, any other bytes."""
    rng = np.random.default_rng(kind.id)
    blocks = np.frombuffer(rng.bytes(BLOCKS * kind.type_size), np.uint8).reshape(BLOCKS, -1).copy()
    blocks[:, 1:2] &= 0x7B if kind.name in ("F16", "BF16") else 0xFF
    if kind.name in SCALES_AT or kind.name == "IQ1_M":
        halves = np.frombuffer(rng.bytes(4 * BLOCKS), "<u2").reshape(2, -1) & 0xBBFF
        put_halves(blocks, kind.name, *halves)
    return blocks.reshape(-1)


def digest(values: NDArray[Any]) -> str:
    return sha256(values.tobytes()).hexdigest()


class _Traits(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
    )


def _decoder() -> Callable[[QuantType, NDArray[np.uint8]], NDArray[np.float32]]:
    import llama_cpp

    library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    library.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)

    def decode(kind: QuantType, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        traits = library.ggml_get_type_traits(kind.id).contents
        assert (traits.block_size, traits.type_size) == (kind.block_size, kind.type_size)
        out = np.empty(raw.size // kind.type_size * kind.block_size, np.float32)
        to_float = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(traits.to_float)
        to_float(raw.ctypes.data, out.ctypes.data, out.size)
        return out

    return decode


def main() -> None:
    import llama_cpp

    decode, types = _decoder(), {}
    for name in RECORDED:
        raw = seeded_blocks(TYPES_BY_NAME[name])
        values = decode(TYPES_BY_NAME[name], raw)
        assert not np.isnan(values).any(), name
        types[name] = {"blocks": digest(raw), "values": digest(values)}
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps({"llama_cpp_python": llama_cpp.__version__, "types": types}, indent=1) + "\n")


if __name__ == "__main__":
    main()
