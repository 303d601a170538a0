"""Sixteen float32 lanes in LLVM: what the packed products are built of.

A product of a row and a weight row is, by definition, sixteen running sums (value k goes to lane k mod 16, each step a
fused multiply-add), added pairwise in a fixed tree at the end. Every kernel here computes just that, so a result does
not depend on how many rows or weights a kernel takes at once, nor on the width of the processor's vectors.
"""

from collections.abc import Iterable
from typing import Any, Final

from ember.numba_support import HAVE_NUMBA

LANES: Final = 16

if HAVE_NUMBA:
    from llvmlite import ir
    from numba.core import cgutils

    REAL, BYTE, HALF = ir.FloatType(), ir.IntType(8), ir.IntType(16)
    WORD, SIZE = ir.IntType(32), ir.IntType(64)
    VECTOR, BYTES = ir.VectorType(REAL, LANES), ir.VectorType(BYTE, LANES)

Value = Any
Builder = Any


def whole_lanes(size: int) -> int:
    """The next multiple of sixteen."""
    return -(-size // LANES) * LANES


def size(value: int) -> Value:
    """A 64-bit constant."""
    return ir.Constant(SIZE, value)


def zeros() -> Value:
    """Sixteen zeros."""
    return ir.Constant(VECTOR, [0.0] * LANES)


def at(b: Builder, base: Value, offset: Value) -> Value:
    """Pointer `offset` elements past `base`."""
    return b.gep(base, [offset])


def load(b: Builder, base: Value, offset: Value, kind: Any) -> Value:
    """Load one `kind` (a vector or a scalar) that need not be aligned."""
    loaded = b.load(b.bitcast(at(b, base, offset), kind.as_pointer()))
    loaded.align = 1
    return loaded


def prefetch(b: Builder, base: Value, offsets: Iterable[int]) -> None:
    """Ask for the cache lines at some offsets; addresses past the end of a mapping do no harm."""
    kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), WORD, WORD, WORD])
    ask = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0i8")
    for offset in offsets:
        b.call(ask, [at(b, base, size(offset)), *(ir.Constant(WORD, n) for n in (0, 3, 1))])  # to read, keep, data


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """x·y + z in every lane, rounded once."""
    kind = ir.FunctionType(VECTOR, [VECTOR, VECTOR, VECTOR])
    return b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.fma.v16f32"), [x, y, z])


def splat(b: Builder, scalar: Value) -> Value:
    """Sixteen copies of a scalar."""
    one = b.insert_element(ir.Constant(VECTOR, ir.Undefined), scalar, ir.Constant(WORD, 0))
    return b.shuffle_vector(one, ir.Constant(VECTOR, ir.Undefined), _mask([0] * LANES))


def half(b: Builder, base: Value, offset: Value) -> Value:
    """The half-precision number stored at `offset` bytes, as float32."""
    kind = ir.FunctionType(REAL, [HALF])
    convert = cgutils.get_or_insert_function(b.module, kind, "llvm.convert.from.fp16.f32")
    return b.call(convert, [load(b, base, offset, HALF)])


def total(b: Builder, lanes: Value) -> Value:
    """Sum of sixteen lanes: lane i with lane i + 8, then i + 4, i + 2, i + 1."""
    count = LANES
    while count > 1:
        count //= 2
        nothing = ir.Constant(lanes.type, ir.Undefined)
        low = b.shuffle_vector(lanes, nothing, _mask(range(count)))
        high = b.shuffle_vector(lanes, nothing, _mask(range(count, 2 * count)))
        lanes = b.fadd(low, high)
    return b.extract_element(lanes, ir.Constant(WORD, 0))


def _mask(lanes: Any) -> Value:
    chosen = list(lanes)
    return ir.Constant(ir.VectorType(WORD, len(chosen)), [ir.Constant(WORD, lane) for lane in chosen])
