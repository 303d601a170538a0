"""Words that two threads change in machine code, and how to wait for one: LLVM atomics on int64 arrays."""

from typing import Any, Final

from ember.numba_support import HAVE_NUMBA, intrinsic

if HAVE_NUMBA:
    from llvmlite import binding, ir
    from numba.core import cgutils, types

RELAX: Final = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}
"""What tells a processor that a loop only waits, by its name in LLVM: an intrinsic and its arguments."""


def _word(context: Any, b: Any, signature: Any, args: Any) -> Any:
    """Pointer to word `args[1]` of the array `args[0]`."""
    return b.gep(context.make_array(signature.args[0])(context, b, args[0]).data, [args[1]])


def _load(typingctx: Any, words: Any, index: Any) -> Any:
    """words[index], and whatever its writer had written before."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load_atomic(_word(context, b, signature, args), "acquire", 8)

    return types.int64(words, types.int64), codegen


def _store(typingctx: Any, words: Any, index: Any, value: Any) -> Any:
    """words[index] = value, after all that was written before."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.store_atomic(args[2], _word(context, b, signature, args), "release", 8)
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), codegen


def _swap(typingctx: Any, words: Any, index: Any, old: Any, new: Any) -> Any:
    """Set words[index] to `new` if it is `old`; tells whether it was."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.extract_value(b.cmpxchg(_word(context, b, signature, args), args[2], args[3], "seq_cst", "seq_cst"), 1)

    return types.boolean(words, types.int64, types.int64, types.int64), codegen


def _advance(typingctx: Any, words: Any, index: Any, by: Any) -> Any:
    """Add to words[index]; returns what it was before."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.atomic_rmw("add", _word(context, b, signature, args), args[2], "seq_cst")

    return types.int64(words, types.int64, types.int64), codegen


def _relax(typingctx: Any) -> Any:
    """Wait for some tens of cycles."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        name, numbers = RELAX.get(binding.get_process_triple().split("-", 1)[0], ("", ()))
        if name:
            word = ir.IntType(32)
            hint = cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), [word] * len(numbers)), name)
            b.call(hint, [ir.Constant(word, number) for number in numbers])
        return context.get_dummy_value()

    return types.void(), codegen


def _give_way(typingctx: Any) -> Any:
    """Let another thread have this core (sched_yield of the C library)."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.IntType(32), []), "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


def _pointer(typingctx: Any, address: Any) -> Any:
    """An address as a pointer that `numba.carray` takes."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), codegen


load: Any = intrinsic(_load)
store: Any = intrinsic(_store)
swap: Any = intrinsic(_swap)
advance: Any = intrinsic(_advance)
relax: Any = intrinsic(_relax)
give_way: Any = intrinsic(_give_way)
pointer: Any = intrinsic(_pointer)
