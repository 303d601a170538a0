"""How sixteen neighbouring values come out of a stored block, in LLVM: the same bits as `ember.gguf.decode` gives.

A loader knows its block's size; `open` reads what the whole block has in common, `values` the lanes 16·j … 16·j + 15.
Layouts are those of ggml (ggml-common.h, ggml-quants.c).
"""

from typing import Any, Final, Protocol

from ember.engine import vectors as v
from ember.numba_support import HAVE_NUMBA

if HAVE_NUMBA:
    from llvmlite import ir

Value = Any
Builder = Any


class Loader(Protocol):
    """One quantisation type."""

    n_values: int
    n_bytes: int

    def open(self, b: Builder, block: Value) -> Any:
        """Read what all values of the block at the byte pointer `block` have in common."""

    def values(self, b: Builder, block: Value, common: Any, j: int) -> Value:
        """Sixteen float32 lanes: values 16·j … 16·j + 15 of the block."""


class F32:
    """float32 as it is."""

    n_values, n_bytes = 16, 64

    def open(self, b: Builder, block: Value) -> Any:
        """See `Loader.open`."""

    def values(self, b: Builder, block: Value, common: Any, j: int) -> Value:
        """See `Loader.values`."""
        return v.load(b, block, v.size(0), v.VECTOR)


class Q8_0:
    """One scale and 32 signed bytes."""

    n_values, n_bytes = 32, 34

    def open(self, b: Builder, block: Value) -> Any:
        """See `Loader.open`."""
        return v.splat(b, v.half(b, block, v.size(0)))

    def values(self, b: Builder, block: Value, common: Any, j: int) -> Value:
        """See `Loader.values`."""
        return b.fmul(common, b.sitofp(v.load(b, block, v.size(2 + 16 * j), v.BYTES), v.VECTOR))


class Q4_1:
    """A scale, a minimum and 32 values of four bits: the low halves of 16 bytes, then the high ones."""

    n_values, n_bytes = 32, 20

    def open(self, b: Builder, block: Value) -> Any:
        """See `Loader.open`."""
        return v.splat(b, v.half(b, block, v.size(0))), v.splat(b, v.half(b, block, v.size(2)))

    def values(self, b: Builder, block: Value, common: Any, j: int) -> Value:
        """See `Loader.values`."""
        scale, least = common
        return b.fadd(b.fmul(scale, _nibbles(b, block, 4, high=bool(j))), least)


class Q4_K:
    """Eight groups of 32 values of four bits, each with a scale and a minimum of six bits."""

    n_values, n_bytes = 256, 144

    def open(self, b: Builder, block: Value) -> Any:
        """See `Loader.open`."""
        scale, least = v.half(b, block, v.size(0)), v.half(b, block, v.size(2))
        packed = [v.load(b, block, v.size(4 + i), v.BYTE) for i in range(12)]
        groups = []
        for group in range(8):
            steps = [b.uitofp(number, v.REAL) for number in _six_bits(b, packed, group)]
            groups.append((v.splat(b, b.fmul(scale, steps[0])), v.splat(b, b.fmul(least, steps[1]))))
        return groups

    def values(self, b: Builder, block: Value, common: Any, j: int) -> Value:
        """See `Loader.values`."""
        group, half = divmod(j, 2)
        scale, least = common[group]
        quants = _nibbles(b, block, 16 + 32 * (group // 2) + 16 * half, high=bool(group % 2))
        return b.fsub(b.fmul(scale, quants), least)


class Q6_K:
    """Sixteen groups of 16 values of six bits (four and two apart), each with a signed byte as scale."""

    n_values, n_bytes = 256, 210

    def open(self, b: Builder, block: Value) -> Any:
        """See `Loader.open`."""
        scale = v.half(b, block, v.size(208))
        steps = [b.sitofp(v.load(b, block, v.size(192 + group), v.BYTE), v.REAL) for group in range(16)]
        return [v.splat(b, b.fmul(scale, step)) for step in steps]

    def values(self, b: Builder, block: Value, common: Any, j: int) -> Value:
        """See `Loader.values`."""
        part, within = divmod(j, 8)  # 128 values each
        quarter, half = divmod(within, 2)
        low = v.load(b, block, v.size(64 * part + 32 * (quarter % 2) + 16 * half), v.BYTES)
        high = v.load(b, block, v.size(128 + 32 * part + 16 * half), v.BYTES)
        low = b.lshr(low, _bytes(4)) if quarter > 1 else b.and_(low, _bytes(15))
        high = b.and_(b.lshr(high, _bytes(2 * quarter)), _bytes(3))
        quants = b.sub(b.or_(low, b.shl(high, _bytes(4))), _bytes(32))
        return b.fmul(common[j], b.sitofp(quants, v.VECTOR))


def _bytes(value: int) -> Value:
    return ir.Constant(v.BYTES, [value] * v.LANES)


def _nibbles(b: Builder, block: Value, offset: int, *, high: bool) -> Value:
    both = v.load(b, block, v.size(offset), v.BYTES)
    return b.uitofp(b.lshr(both, _bytes(4)) if high else b.and_(both, _bytes(15)), v.VECTOR)


def _six_bits(b: Builder, packed: list[Value], group: int) -> tuple[Value, Value]:
    """Scale and minimum of a group (ggml's get_scale_min_k4)."""

    def number(value: int) -> Value:
        return ir.Constant(v.BYTE, value)

    if group < 4:
        return b.and_(packed[group], number(63)), b.and_(packed[group + 4], number(63))
    scale = b.or_(b.and_(packed[group + 4], number(15)), b.shl(b.lshr(packed[group - 4], number(6)), number(4)))
    least = b.or_(b.lshr(packed[group + 4], number(4)), b.shl(b.lshr(packed[group], number(6)), number(4)))
    return scale, least


LOADERS: Final[dict[str, Loader]] = {"F32": F32(), "Q8_0": Q8_0(), "Q4_1": Q4_1(), "Q4_K": Q4_K(), "Q6_K": Q6_K()}
"""By type name. Other types are decoded a few rows at a time and multiplied as F32."""
