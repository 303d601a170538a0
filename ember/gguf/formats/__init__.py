"""Stored values to float32 in NumPy: one small function for each format, each saying its bytes.

A decoder takes `blocks` uint8 [n, bytes of a block] and `out` float32 [n, values of a block], both C-contiguous along
the last axis. `DECODERS` has every one by the name of its type; `ember.gguf.decode` is the checked way in.
"""

from collections.abc import Callable
from typing import Any, Final

from ember.gguf.formats import codebooks, floats, grids, k_quants, rounds, ternary

Decoder = Callable[[Any, Any], None]
DECODERS: Final[dict[str, Decoder]] = {
    "F32": floats.f32,
    "F16": floats.f16,
    "BF16": floats.bf16,
    "Q4_0": rounds.q4_0,
    "Q4_1": rounds.q4_1,
    "Q5_0": rounds.q5_0,
    "Q5_1": rounds.q5_1,
    "Q8_0": rounds.q8_0,
    "Q2_K": k_quants.q2_k,
    "Q3_K": k_quants.q3_k,
    "Q4_K": k_quants.q4_k,
    "Q5_K": k_quants.q5_k,
    "Q6_K": k_quants.q6_k,
    "IQ1_S": grids.iq1_s,
    "IQ1_M": grids.iq1_m,
    "IQ2_XXS": grids.iq2_xxs,
    "IQ2_XS": grids.iq2_xs,
    "IQ2_S": grids.iq2_s,
    "IQ3_XXS": grids.iq3_xxs,
    "IQ3_S": grids.iq3_s,
    "IQ4_NL": codebooks.iq4_nl,
    "IQ4_XS": codebooks.iq4_xs,
    "TQ1_0": ternary.tq1_0,
    "TQ2_0": ternary.tq2_0,
    "MXFP4": codebooks.mxfp4,
    "NVFP4": codebooks.nvfp4,
}
"""By type name: every type that gguf-py decodes."""
