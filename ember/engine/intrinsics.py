"""Scalar building blocks of the kernels, written in LLVM: fused multiply-add and an exponential that vectorises.

Without `fastmath` LLVM keeps every operation as written, so the same bits come out scalar, vectorised or inlined.
"""

from typing import Any, Final

from ember.numba_support import HAVE_NUMBA, intrinsic

if HAVE_NUMBA:
    from llvmlite import ir
    from numba.core import types

LOG2E: Final = 1.44269504088896341
LN2_HIGH: Final = 0.693359375
LN2_LOW: Final = -2.12194440e-4
POLYNOMIAL: Final = (
    # exp(r) = 1 + r + r²·p(r) for |r| <= ln 2 / 2; coefficients of Cephes' expf (Moshier, single/expf.c)
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
ROUND: Final = 12582912.0
"""1.5 · 2**23: adding it leaves the nearest integer in the low bits of the sum."""
LOWEST: Final = -87.0
"""exp below this is subnormal or zero and is returned as zero."""
HIGHEST: Final = 88.0


def _fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c, rounded once (float32)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


def _exp32(typingctx: Any, x: Any) -> Any:
    """exp(x) in float32: within 2 ulp on [-87, 88]; zero below, clamped above, NaN for NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _exp_code(builder, args[0])

    return types.float32(types.float32), codegen


fma: Any = intrinsic(_fma)
exp32: Any = intrinsic(_exp32)


def _exp_code(builder: Any, x: Any) -> Any:
    real, word = ir.FloatType(), ir.IntType(32)

    def number(value: float) -> Any:
        return ir.Constant(real, value)

    low = builder.fcmp_ordered("<", x, number(LOWEST))
    high = builder.fcmp_ordered(">", x, number(HIGHEST))
    clamped = builder.select(low, number(LOWEST), builder.select(high, number(HIGHEST), x))
    shifted = builder.fma(clamped, number(LOG2E), number(ROUND))
    n = builder.fsub(shifted, number(ROUND))
    r = builder.fma(n, number(-LN2_HIGH), clamped)
    r = builder.fma(n, number(-LN2_LOW), r)
    p = number(POLYNOMIAL[0])
    for coefficient in POLYNOMIAL[1:]:
        p = builder.fma(p, r, number(coefficient))
    mantissa = builder.fadd(builder.fma(builder.fmul(r, r), p, r), number(1.0))
    # the low bits of `shifted` hold n; shifted left by 23 they are its exponent
    exponent = builder.shl(builder.bitcast(shifted, word), ir.Constant(word, 23))
    scaled = builder.bitcast(builder.add(builder.bitcast(mantissa, word), exponent), real)
    scaled = builder.select(low, number(0.0), scaled)
    return builder.select(builder.fcmp_unordered("uno", x, x), x, scaled)
