"""The recorder of a trace: times operations and tells them, one event each, in the order in which they run.

It knows which evaluation and layer is running. Operations inside a larger one (the embedding, side inputs) add to it.
"""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ember.engine.events import Event, Phase, Values, WeightState
from ember.engine.linear import Linear
from ember.engine.weights import Residence
from ember.work import Floats

Result = TypeVar("Result")
FLOAT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of an operation, as it is kept."""

    state: WeightState
    nbytes: int


@dataclass(frozen=True, slots=True)
class Operation:
    """What is known of an operation before it runs."""

    name: str
    op_kind: str
    kernel: str
    input_shape: tuple[int, ...]
    input_bytes: int
    flops: int
    weight: Weight | None = None
    fused_into: str | None = None


@dataclass(slots=True)
class Total:
    """What the operations inside a larger one add up to."""

    flops: int = 0
    weight_bytes: int = 0
    state: WeightState | None = None
    """Of the first weight: an embedding's."""
    kernels: dict[str, None] = field(default_factory=dict)

    def take(self, operation: Operation) -> None:
        """Add one operation."""
        self.flops += operation.flops
        self.kernels[operation.kernel] = None
        if operation.weight is not None:
            self.weight_bytes += operation.weight.nbytes
            self.state = self.state or operation.weight.state

    def operation(self, name: str, op_kind: str, given: NDArray[Any]) -> Operation:
        """Return the larger operation."""
        weight = None if self.state is None else Weight(self.state, self.weight_bytes)
        return Operation(name, op_kind, " + ".join(self.kernels), given.shape, given.nbytes, self.flops, weight)


class Digest:
    """Norm and fingerprint of a tensor that may come in parts, row after row."""

    def __init__(self) -> None:
        self._squares = 0.0
        self._sha256 = hashlib.sha256()
        self._empty = True

    def take(self, part: Floats) -> None:
        """Add values."""
        self._empty = False
        self._squares += float(np.square(part, dtype=np.float64).sum())
        self._sha256.update(np.ascontiguousarray(part, "<f4").data)

    def values(self) -> Values:
        """Return what the parts were together."""
        if self._empty:
            return Values()
        return Values(math.sqrt(self._squares), self._sha256.hexdigest()[:16])


@dataclass(slots=True)
class Told:
    """An operation that has run; a long prompt's rows go through a layer in chunks, which are one operation."""

    operation: Operation
    shape: tuple[int, ...]
    nbytes: int
    took: int
    digest: Digest | None

    def join(self, operation: Operation, shape: tuple[int, ...], nbytes: int, took: int) -> None:
        """Add the next chunk of rows."""
        mine = self.operation
        self.operation = replace(
            mine,
            input_shape=_joined(mine.input_shape, operation.input_shape),
            input_bytes=mine.input_bytes + operation.input_bytes,
            flops=mine.flops + operation.flops,
        )
        self.shape = _joined(self.shape, shape)
        self.nbytes += nbytes
        self.took += took


def _joined(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return one[0] + other[0], *one[1:]


class Tracer:
    """Tells the operations of one run to `emit`, in order; `finish` tells the last."""

    def __init__(self, emit: Callable[[Event], None], *, route: str, residence: Residence, values: bool) -> None:
        self.route = route
        self.values = values
        self.phase: Phase = "prefill"
        self._emit, self._residence = emit, residence
        self._position = -1
        self._layer: int | None = None
        self._told: list[Told] = []
        self._next = 0
        self._total: Total | None = None

    def begin(self, position: int) -> None:
        """Begin an evaluation whose first token is at `position`: the prompt's, then one for every token fed."""
        self.enter(None)
        self.phase = "prefill" if self._position < 0 else "decode"
        self._position = position

    def enter(self, layer: int | None) -> None:
        """Go on in a layer, or (None) outside the layers; a layer that is entered again takes its next chunk."""
        self._next = 0
        if layer is None or layer != self._layer:
            self.finish()
            self._layer = layer

    def finish(self) -> None:
        """Tell what has been held back."""
        for told in self._told:
            self._emit(self._event(told))
        self._told.clear()
        self._next = 0

    def kernel(self, compiled: str) -> str:
        """Name what does an element-wise operation: the fast route's compiled kernel, or NumPy."""
        return f"numba {compiled}" if self.route == "fast" else "numpy"

    def linear(self, weight: Linear) -> Weight:
        """Return how the weight of a product is kept; float32 tensors are read where they lie in the file."""
        if weight.info.type.name == "F32" or self._residence == "resident":
            return Weight("resident", weight.out_features * weight.in_features * FLOAT_BYTES)
        return Weight("streamed", weight.out_features * weight.info.row_bytes)

    def run(self, operation: Operation, call: Callable[[], Floats]) -> Floats:
        """Run and tell one operation."""
        if self._total is not None:
            self._total.take(operation)
            return call()
        start = time.perf_counter_ns()
        out = call()
        self.tell(operation, out.shape, time.perf_counter_ns() - start, out)
        return out

    def pass_over(self, operation: Operation) -> None:
        """Tell an operation that runs inside the next one and leaves nothing in memory; its shape is its input's."""
        if self._total is not None:
            self._total.take(operation)
        else:
            self.tell(operation, operation.input_shape, 0, None)

    def run_whole(self, name: str, op_kind: str, given: NDArray[Any], call: Callable[[], Result]) -> Result:
        """Run what consists of several operations and tell it as one; where it gives nothing, nothing is told."""
        self.enter(None)
        total = self._total = Total()
        start = time.perf_counter_ns()
        try:
            out = call()
        finally:
            self._total = None
        took = time.perf_counter_ns() - start
        if isinstance(out, np.ndarray):
            self.tell(total.operation(name, op_kind, given), out.shape, took, out)
        return out

    def tell(self, operation: Operation, shape: tuple[int, ...], took: int, out: Floats | None) -> None:
        """Tell an operation whose output of `shape` is `out`; None: nothing was left in memory."""
        nbytes = 0 if out is None else out.nbytes
        if self._next < len(self._told):
            told = self._told[self._next]
            told.join(operation, shape, nbytes, took)
        else:
            told = Told(operation, shape, nbytes, took, Digest() if self.values else None)
            self._told.append(told)
        self._next += 1
        if told.digest is not None and out is not None:
            told.digest.take(out)

    def tell_digested(self, told: Told) -> None:
        """Tell an operation that has been put together elsewhere."""
        self.enter(None)
        self._told.append(told)

    def _event(self, told: Told) -> Event:
        operation, weight = told.operation, told.operation.weight
        return Event(
            name=operation.name,
            op_kind=operation.op_kind,
            phase=self.phase,
            layer=self._layer,
            token_index=self._position,
            input_shape=operation.input_shape,
            output_shape=told.shape,
            input_bytes=operation.input_bytes,
            output_bytes=told.nbytes,
            weight_bytes=0 if weight is None else weight.nbytes,
            duration_ns=told.took,
            estimated_flops=operation.flops,
            kernel=operation.kernel,
            weights=None if weight is None else weight.state,
            fused_into=operation.fused_into,
            values=None if told.digest is None else told.digest.values(),
        )
