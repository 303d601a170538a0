"""Rows times packed weights: kernels that read each stored block once for several rows and never write it decoded.

`tile` multiplies R weight rows by S rows of x; its sums live in registers. All tiles compute each single product in the
way `ember.engine.vectors` defines, so that R and S decide speed and not one bit.
"""

from collections.abc import Callable
from typing import Any, Final

from ember.engine import vectors as v
from ember.engine.block_loaders import LOADERS, Loader
from ember.numba_support import HAVE_NUMBA, inlined, kernel, literal_intrinsic

if HAVE_NUMBA:
    from numba.core import types

SIGNATURE: Final = (
    "void(Array(uint8, 1, 'C', readonly=True), Array(float32, 2, 'C', readonly=True), float32[:, ::1], int64, int64)"
)

AHEAD: Final = 16 << 10
"""Bytes ahead that tiles ask for: a core alone waits for memory two thirds of its time (7 against 22 GB/s of Q8_0)."""
CACHE_LINE: Final = 64
KINDS: Final = tuple(LOADERS)
"""Stored types by the number that kernels know them by."""
Product = Callable[[Any, Any, Any, int, int], None]


def _tile(context: Any, kind: Any, weights: Any, rows: Any, raw: Any, byte: Any, row_bytes: Any, x: Any, value: Any,
          width: Any, out: Any, first: Any, stride: Any) -> Any:  # fmt: skip
    """Multiply `weights` stored rows of type `kind` by `rows` rows of x.

    The stored rows begin at `byte`, those of x at `value`; writes out[first + row·stride + weight]. The first three
    arguments are constants: each set of them becomes code of its own.
    """
    loader = LOADERS[KINDS[kind.literal_value]]
    n_weights, n_rows, integers = weights.literal_value, rows.literal_value, types.int64
    signature = types.void(kind, weights, rows, raw, integers, integers, x, integers, integers, out, integers, integers)

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data = [context.make_array(signature.args[i])(context, b, args[i]).data for i in (3, 6, 9)]
        blocks = [v.at(b, data[0], b.add(args[4], b.mul(args[5], v.size(n)))) for n in range(n_weights)]
        lines = [v.at(b, data[1], b.add(args[7], b.mul(args[8], v.size(n)))) for n in range(n_rows)]
        sums = loop_over_blocks(b, loader, blocks, lines, args[8], AHEAD)
        for line in range(n_rows):
            for weight in range(n_weights):
                place = b.add(args[10], b.add(b.mul(args[11], v.size(line)), v.size(weight)))
                b.store(v.total(b, sums[weight][line]), v.at(b, data[2], place))
        return context.get_dummy_value()

    return signature, codegen


tile: Any = literal_intrinsic(_tile)


def loop_over_blocks(
    b: Any, loader: Loader, blocks: list[Any], lines: list[Any], width: Any, ahead: int = 0
) -> list[list[Any]]:
    """Run over the blocks of `width` values; returns sums[weight][line], sixteen lanes each.

    `ahead`: stored bytes that lie so far ahead are asked for while these are worked on; 0: none.
    """
    entry, loop = b.basic_block, b.append_basic_block("blocks")
    done = b.append_basic_block("done")
    b.branch(loop)
    b.position_at_end(loop)
    k = b.phi(v.SIZE)
    k.add_incoming(v.size(0), entry)
    running = [[b.phi(v.VECTOR) for _ in lines] for _ in blocks]
    number = b.udiv(k, v.size(loader.n_values))
    here = [v.at(b, block, b.mul(number, v.size(loader.n_bytes))) for block in blocks]
    if ahead:
        for block in here:
            v.prefetch(b, block, range(ahead, ahead + loader.n_bytes, CACHE_LINE))
    common = [loader.open(b, block) for block in here]
    sums = [list(line) for line in running]
    for j in range(loader.n_values // v.LANES):
        xs = [v.load(b, line, b.add(k, v.size(16 * j)), v.VECTOR) for line in lines]
        for weight, block in enumerate(here):
            values = loader.values(b, block, common[weight], j)
            for line, x in enumerate(xs):
                sums[weight][line] = v.fma(b, values, x, sums[weight][line])
    following = b.add(k, v.size(loader.n_values))
    k.add_incoming(following, loop)
    for before, after in zip(running, sums, strict=True):
        for phi, total in zip(before, after, strict=True):
            phi.add_incoming(v.zeros(), entry)
            phi.add_incoming(total, loop)
    b.cbranch(b.icmp_unsigned("<", following, width), loop, done)
    b.position_at_end(done)
    return sums


@inlined
def _tiles(kind: Any, weights: Any, rows: Any, row_bytes: Any, raw: Any, x: Any, out: Any,
           start: Any, stop: Any, first: Any, end: Any) -> None:  # fmt: skip
    """Multiply rows first … end - 1 of x, a multiple of `rows`, by the weights start … stop - 1."""
    width, stride = x.shape[1], out.shape[1]
    whole = stop - (stop - start) % weights
    for n in range(start, whole, weights):
        for s in range(first, end, rows):
            tile(kind, weights, rows, raw, n * row_bytes, row_bytes, x, s * width, width, out, s * stride + n, stride)
    for n in range(whole, stop):
        for s in range(first, end, rows):
            tile(kind, 1, rows, raw, n * row_bytes, row_bytes, x, s * width, width, out, s * stride + n, stride)


@inlined
def _multiply(kind: Any, weights: Any, rows: Any, n_values: Any, n_bytes: Any, raw: Any, x: Any, out: Any,
              start: Any, stop: Any) -> None:  # fmt: skip
    """Multiply with tiles of `weights` by `rows`, what is left of x with four by four, and then with four by one."""
    count, row_bytes = x.shape[0], x.shape[1] // n_values * n_bytes
    most = count - count % rows
    fours = most + (count - most) // 4 * 4
    if most > 0:
        _tiles(kind, weights, rows, row_bytes, raw, x, out, start, stop, 0, most)
    if fours > most:
        _tiles(kind, 4, 4, row_bytes, raw, x, out, start, stop, most, fours)
    if count > fours:
        _tiles(kind, 4, 1, row_bytes, raw, x, out, start, stop, fours, count)


@kernel(SIGNATURE)
def f32(raw: Any, x: Any, out: Any, start: int, stop: int) -> None:
    """See `PRODUCTS`."""
    _multiply(0, 6, 4, 16, 64, raw, x, out, start, stop)


@kernel(SIGNATURE)
def q8_0(raw: Any, x: Any, out: Any, start: int, stop: int) -> None:
    """See `PRODUCTS`."""
    _multiply(1, 6, 4, 32, 34, raw, x, out, start, stop)


@kernel(SIGNATURE)
def q4_1(raw: Any, x: Any, out: Any, start: int, stop: int) -> None:
    """See `PRODUCTS`."""
    _multiply(2, 2, 8, 32, 20, raw, x, out, start, stop)


@kernel(SIGNATURE)
def q4_k(raw: Any, x: Any, out: Any, start: int, stop: int) -> None:
    """See `PRODUCTS`."""
    _multiply(3, 2, 8, 256, 144, raw, x, out, start, stop)


@kernel(SIGNATURE)
def q6_k(raw: Any, x: Any, out: Any, start: int, stop: int) -> None:
    """See `PRODUCTS`."""
    _multiply(4, 2, 8, 256, 210, raw, x, out, start, stop)


BLOCK_VALUES: Final = {name: loader.n_values for name, loader in LOADERS.items()}
# shapes of tiles are those that were fastest: six by four for types whose blocks have one scale and no minimum (154
# GFLOP/s of Q8_0 instead of 107), two by eight where opening a block takes more registers (114 of Q4_K instead of 79)
PRODUCTS: Final[dict[str, Product]] = {"F32": f32, "Q8_0": q8_0, "Q4_1": q4_1, "Q4_K": q4_k, "Q6_K": q6_k}
"""By stored type: product(raw, x, out, start, stop) sets out[:, start:stop] = x @ weight[start:stop].T.

raw [bytes] holds all rows of the weight; x [S, K] and out [S, N] are float32; K is a whole number of blocks.
"""
