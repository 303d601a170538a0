"""What a trace is made of: one event an operation, its names, and how many FLOPs it is counted as.

Names follow from what a family's code says of each operation (a weight's name, a role), so that a family needs nothing
of its own to be traced: docs/reference/trace.md lists the outcome family by family.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

Phase = Literal["prefill", "decode"]
WeightState = Literal["packed", "resident", "streamed"]
"""Kept as blocks and multiplied as such; as float32; as blocks that are decoded for every product."""


@dataclass(frozen=True, slots=True)
class Values:
    """What the output of an operation was; None both where it left nothing in memory."""

    norm: float | None = None
    """L2 norm, formed in float64."""
    fingerprint: str | None = None
    """First 16 hexadecimal digits of the SHA-256 of the float32 values, little-endian, row after row."""


@dataclass(frozen=True, slots=True)
class Event:
    """One operation of one evaluation."""

    name: str
    op_kind: str
    phase: Phase
    layer: int | None
    """None outside the layers."""
    token_index: int
    """Position of the first token that the evaluation was fed: 0 in a prefill."""
    input_shape: tuple[int, ...]
    """Of the first input: [T, width], or [T] token ids."""
    output_shape: tuple[int, ...]
    input_bytes: int
    """Activations read, of all inputs."""
    output_bytes: int
    """Activations written; 0 where a fused operation leaves nothing in memory."""
    weight_bytes: int
    """The weight in the form in which it is kept; 0: no weight."""
    duration_ns: int
    """0 for an operation that ran inside another, which has the time of both."""
    estimated_flops: int
    kernel: str
    weights: WeightState | None
    fused_into: str | None
    """Name of the operation, later in the same layer, inside which this one ran."""
    values: Values | None = None
    """None: nobody asked for values."""

    def record(self) -> dict[str, Any]:
        """Return the event as plain data, in the order of a journal's line."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "values"}
        plain["input_shape"], plain["output_shape"] = list(self.input_shape), list(self.output_shape)
        if self.values is not None:
            # JSON has no NaN and no infinity
            norm = self.values.norm
            plain["norm"] = norm if norm is not None and math.isfinite(norm) else None
            plain["fingerprint"] = self.values.fingerprint
        return plain


_PRODUCTS: Final = {
    "attn_q.weight": "q_proj",
    "attn_k.weight": "k_proj",
    "attn_v.weight": "v_proj",
    "attn_output.weight": "o_proj",
    "ffn_gate.weight": "gate_proj",
    "ffn_up.weight": "up_proj",
    "ffn_down.weight": "down_proj",
    "inp_gate.weight": "ple_gate_proj",
    "proj.weight": "ple_proj",
}
_BIASES: Final = {
    "attn_q_bias": "q_bias",
    "attn_k_bias": "k_bias",
    "attn_v_bias": "v_bias",
    "attn_output_bias": "o_bias",
    "ffn_up_bias": "up_bias",
    "ffn_down_bias": "down_bias",
}
_NORMS: Final = {
    "attn_norm": "attn_{kind}",
    "ffn_norm": "mlp_{kind}",
    "attn_q_norm": "q_norm",
    "attn_k_norm": "k_norm",
    "attn_v_norm": "v_norm",
    "post_attention_norm": "attn_post_norm",
    "post_ffw_norm": "mlp_post_norm",
    "post_norm": "ple_post_norm",
}

PLE_GATE: Final = "inp_gate.weight"
"""The product whose activation belongs to a per-layer embedding, not to the MLP."""

FLOPS_PER_VALUE: Final = {
    # a transcendental function, a division and a root count as one each
    "rms_norm": 4,  # square, sum, times 1/rms, times weight
    "layer_norm": 8,  # sum, centre, square, sum, times 1/deviation, times weight, plus bias, one for the row's own
    "rope": 3,  # a pair of values takes four products and two sums
    "silu": 4,  # x / (1 + exp(-x))
    "gelu": 9,  # x/2 · (1 + tanh(c · (x + a·x³)))
    "add": 1,
    "multiply": 1,
}


def product_name(role: str) -> str:
    """Name of a product with the weight of this role; a role that no table knows names itself."""
    return _PRODUCTS.get(role, role.removesuffix(".weight"))


def bias_name(role: str) -> str:
    """Name of the addition of a bias."""
    return _BIASES.get(role, role)


def norm_name(role: str, kind: str) -> str:
    """Name of a norm of `kind` (`rms_norm` or `layer_norm`)."""
    return _NORMS.get(role, role).format(kind=kind)


def addition_name(role: str) -> str:
    """Name of an addition to the residual stream."""
    return f"{role}_add"


def product_flops(rows: int, columns_in: int, columns_out: int) -> int:
    """A multiplication and an addition for each of T·K·N terms."""
    return 2 * rows * columns_in * columns_out


def attention_flops(pairs: int, heads: int, key_size: int, value_size: int) -> int:
    """Scores and mixture over the `pairs` of a query and a key it sees, in every head, with a softmax of 5 a score."""
    return pairs * heads * (2 * key_size + 2 * value_size + 5)
