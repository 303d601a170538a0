"""A model, its backend and its steps as a trace sees them: the same calls, each timed and told.

Nothing here computes: every call goes on to the real thing with the same arguments. Without a trace none of these
exist, and the engine runs the real ones. A trace is of one prompt alone, since nothing is pruned there.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.card import BoundModel
from ember.engine import events
from ember.engine.backend import Backend
from ember.engine.cache import LayerCache, Seen
from ember.engine.linear import Linear
from ember.engine.rope import Rope
from ember.engine.step import Step
from ember.engine.tracer import FLOAT_BYTES, Digest, Operation, Told, Tracer, Weight
from ember.units import PrefixTree
from ember.work import Floats, Tokens

SGEMM: Final = "blas sgemm"


def traced(model: BoundModel, be: Backend, tracer: Tracer) -> tuple[BoundModel, Backend]:
    """Return model and backend for a run of one prompt whose operations `tracer` tells."""
    head = _Head(tracer)
    return replace(model, family=TracedFamily(model.family, tracer, head)), TracedBackend(be, tracer, head)


class _Head:
    """The product with the head, put together from its slices."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._took = self._width = 0
        self._digest: Digest | None = None

    def slices(self, given: Iterator[tuple[int, int, Floats]], operation: Operation) -> Iterator[Any]:
        """Pass slices on, and tell the product after the last."""
        self._took = self._width = 0
        self._digest = Digest() if self._tracer.values else None
        while True:
            start = time.perf_counter_ns()
            one = next(given, None)
            self._took += time.perf_counter_ns() - start
            if one is None:
                break
            yield one
        shape = (operation.input_shape[0], self._width)
        nbytes = shape[0] * shape[1] * FLOAT_BYTES
        self._tracer.tell_digested(Told(operation, shape, nbytes, self._took, self._digest))

    def finished(self, scores: Floats, took: int) -> None:
        """Take a slice of logits as the family left it."""
        self._took += took
        self._width += scores.shape[1]
        if self._digest is not None:
            self._digest.take(scores)


class TracedFamily(ModuleType):
    """A family whose embedding, side inputs, layers, final norm and logits are told."""

    def __init__(self, family: ModuleType, tracer: Tracer, head: _Head) -> None:
        super().__init__(family.__name__)
        self._family, self._tracer, self._head = family, tracer, head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def embed(self, be: Backend, config: Any, weights: Any, tokens: Tokens, positions: NDArray[np.int32]) -> Floats:
        """Embed as the family does, at the beginning of an evaluation."""
        self._tracer.begin(int(positions[0]))
        call = partial(self._family.embed, be, config, weights, tokens, positions)
        x: Floats = self._tracer.run_whole("embedding", "embedding", tokens, call)
        return x

    def side_inputs(self, be: Backend, config: Any, weights: Any, tokens: Tokens, x: Floats) -> Floats | None:
        """Make the side inputs as the family does; nothing is told where it has none."""
        call = partial(self._family.side_inputs, be, config, weights, tokens, x)
        made: Floats | None = self._tracer.run_whole("per_layer_inputs", "embedding", x, call)
        return made

    def layer(self, be: Backend, config: Any, weights: Any, index: int, x: Floats, step: Step) -> Floats:
        """Run a layer as the family does."""
        self._tracer.enter(index)
        out: Floats = self._family.layer(be, config, weights, index, x, TracedStep(step, self._tracer))
        return out

    def final_norm(self, be: Backend, config: Any, weights: Any, x: Floats) -> Floats:
        """Norm the rows that the head reads, as the family does."""
        call = partial(self._family.final_norm, be, config, weights, x)
        h: Floats = self._tracer.run_whole("final_norm", "norm", x, call)
        return h

    def logits(self, be: Backend, config: Any, scores: Floats) -> Floats:
        """Finish logits as the family does: a part of the head."""
        start = time.perf_counter_ns()
        final: Floats = self._family.logits(be, config, scores)
        self._head.finished(final, time.perf_counter_ns() - start)
        return final


class TracedStep:
    """A `Step` whose storing and attending are told."""

    def __init__(self, step: Step, tracer: Tracer) -> None:
        self._step, self._tracer = step, tracer

    @property
    def positions(self) -> NDArray[np.int32]:
        """See `Step.positions`."""
        return self._step.positions

    @property
    def key_positions(self) -> NDArray[np.int32]:
        """See `Step.key_positions`."""
        return self._step.key_positions

    def tap(self, site: str, a: Floats) -> None:
        """See `Step.tap`: who looks there is no operation of the model."""
        self._step.tap(site, a)

    def prune(self, x: Floats, h: Floats) -> tuple[Floats, Floats]:
        """See `Step.prune`."""
        return self._step.prune(x, h)

    def store(self, k: Floats, v: Floats) -> None:
        """See `Step.store`."""
        operation = Operation("kv_cache_store", "cache", "numpy", k.shape, k.nbytes + v.nbytes, 0)
        start = time.perf_counter_ns()
        self._step.store(k, v)
        took = time.perf_counter_ns() - start
        stored = np.concatenate([k, v], axis=1)  # [T, K·E] twice -> one row a token, however rows come in chunks
        self._tracer.tell(operation, stored.shape, took, stored)

    def attend(
        self, q: Floats, heads: tuple[int, int], scale: float, window: int = 0, source: int | None = None
    ) -> Floats:
        """See `Step.attend`."""
        start = time.perf_counter_ns()
        out = self._step.attend(q, heads, scale, window, source)
        took = time.perf_counter_ns() - start
        n_heads, n_kv = heads
        key_size, value_size = q.shape[1] // n_heads, out.shape[1] // n_heads
        seen = self._step.positions.astype(np.int64) + 1  # [T] keys that each query sees
        seen = np.minimum(seen, window) if window else seen
        # a prefill attends to its own rows, a decoded token to what is cached
        keys = len(self._step.key_positions) if self._tracer.phase == "prefill" else int(seen.sum())
        read = q.nbytes + keys * n_kv * (key_size + value_size) * FLOAT_BYTES
        flops = events.attention_flops(int(seen.sum()), n_heads, key_size, value_size)
        operation = Operation("attention_score", "attention", self._kernel(), q.shape, read, flops)
        self._tracer.tell(operation, out.shape, took, out)
        return out

    def _kernel(self) -> str:
        return self._tracer.kernel("attend_rows" if self._tracer.phase == "prefill" else "attend_cached")

    def side(self) -> Floats:
        """See `Step.side`."""
        return self._step.side()


class TracedBackend:
    """A `Backend` whose primitives are told, but for attention, which the step tells."""

    def __init__(self, be: Backend, tracer: Tracer, head: _Head) -> None:
        self._be, self._tracer, self._head = be, tracer, head
        self.route, self.products = be.route, be.products
        self._product = ""
        """Role of the product that ran last: an activation belongs to it."""

    def for_decode(self) -> "TracedBackend":
        """See `Backend.for_decode`."""
        return TracedBackend(self._be.for_decode(), self._tracer, self._head)

    def _each(self, name: str, op_kind: str, cost: str, kernel: str, *inputs: Floats, weight: int = 0) -> Operation:
        """Describe an operation that does the same to every value of its first input."""
        x = inputs[0]
        flops = events.FLOPS_PER_VALUE[cost] * x.size
        kept = Weight("resident", weight) if weight else None
        return Operation(name, op_kind, kernel, x.shape, sum(one.nbytes for one in inputs), flops, kept)

    def embed(self, weight: Linear, tokens: Tokens) -> Floats:
        """See `Backend.embed`."""
        # rows are decoded on demand, whatever becomes of the weight elsewhere
        kept = Weight("resident" if weight.info.type.name == "F32" else "streamed", len(tokens) * weight.info.row_bytes)
        kernel = self._tracer.kernel("decode")
        operation = Operation(weight.role, "embedding", kernel, tokens.shape, tokens.nbytes, 0, kept)
        return self._tracer.run(operation, lambda: self._be.embed(weight, tokens))

    def matmul(self, x: Floats, weight: Linear) -> Floats:
        """See `Backend.matmul`."""
        self._product = weight.role
        operation = self._matmul(events.product_name(weight.role), x, weight)
        return self._tracer.run(operation, lambda: self._be.matmul(x, weight))

    def _matmul(self, name: str, x: Floats, weight: Linear) -> Operation:
        flops = events.product_flops(len(x), weight.in_features, weight.out_features)
        packed = Weight("packed", weight.out_features * weight.info.row_bytes)
        kept = packed if self.products != SGEMM else self._tracer.linear(weight)
        return Operation(name, "matmul", self.products, x.shape, x.nbytes, flops, kept)

    def head_slices(self, x: Floats, weight: Linear) -> Iterator[tuple[int, int, Floats]]:
        """See `Backend.head_slices`."""
        return self._head.slices(self._be.head_slices(x, weight), self._matmul("lm_head", x, weight))

    def rms_norm(self, x: Floats, weight: Floats, eps: float, role: str) -> Floats:
        """See `Backend.rms_norm`."""
        return self._tracer.run(
            self._norm(role, "rms_norm", x, weight.nbytes), lambda: self._be.rms_norm(x, weight, eps, role)
        )

    def head_norm(self, x: Floats, weight: Floats, eps: float, role: str) -> Floats:
        """See `Backend.head_norm`."""
        return self._tracer.run(
            self._norm(role, "rms_norm", x, weight.nbytes), lambda: self._be.head_norm(x, weight, eps, role)
        )

    def layer_norm(self, x: Floats, weight: Floats, bias: Floats, eps: float, role: str) -> Floats:
        """See `Backend.layer_norm`."""
        return self._tracer.run(
            self._norm(role, "layer_norm", x, weight.nbytes + bias.nbytes),
            lambda: self._be.layer_norm(x, weight, bias, eps, role),
        )

    def _norm(self, role: str, kind: str, x: Floats, weight: int) -> Operation:
        return self._each(events.norm_name(role, kind), "norm", kind, self._tracer.kernel(kind), x, weight=weight)

    def rope(self, x: Floats, positions: NDArray[np.int32], rope: Rope, role: str) -> Floats:
        """See `Backend.rope`."""
        operation = self._each(role, "rope", "rope", self._tracer.kernel(f"rope_{rope.layout}"), x)
        return self._tracer.run(operation, lambda: self._be.rope(x, positions, rope, role))

    def scale(self, x: Floats, factor: float) -> Floats:
        """See `Backend.scale`."""
        operation = self._each("layer_scale", "multiply", "multiply", "numpy", x)
        return self._tracer.run(operation, lambda: self._be.scale(x, factor))

    def add_bias(self, x: Floats, bias: Floats, role: str) -> Floats:
        """See `Backend.add_bias`."""
        kernel = self._tracer.kernel("add_bias")
        operation = self._each(events.bias_name(role), "add", "add", kernel, x, weight=bias.nbytes)
        return self._tracer.run(operation, lambda: self._be.add_bias(x, bias, role))

    def add(self, x: Floats, y: Floats, role: str) -> Floats:
        """See `Backend.add`."""
        operation = self._each(events.addition_name(role), "add", "add", self._tracer.kernel("add"), x, y)
        return self._tracer.run(operation, lambda: self._be.add(x, y, role))

    def gelu(self, x: Floats) -> Floats:
        """See `Backend.gelu`."""
        operation = self._each("gelu", "activation", "gelu", self._tracer.kernel("gelu"), x)
        return self._tracer.run(operation, lambda: self._be.gelu(x))

    def gelu_mul(self, gate: Floats, up: Floats) -> Floats:
        """See `Backend.gelu_mul`."""
        return self._gated("gelu", gate, up, lambda: self._be.gelu_mul(gate, up))

    def silu_mul(self, gate: Floats, up: Floats) -> Floats:
        """See `Backend.silu_mul`."""
        return self._gated("silu", gate, up, lambda: self._be.silu_mul(gate, up))

    def _gated(self, function: str, gate: Floats, up: Floats, call: Callable[[], Floats]) -> Floats:
        """Run an activation and a product in one primitive: two events, the first of which left nothing in memory."""
        of = "ple_" if self._product == events.PLE_GATE else ""
        kernel = self._tracer.kernel(f"{function}_mul")
        first = self._each(of + function, "activation", function, kernel, gate)
        self._tracer.pass_over(replace(first, fused_into=of + "elemul"))
        return self._tracer.run(self._each(of + "elemul", "multiply", "multiply", kernel, up), call)

    def plan_attention(self, tree: PrefixTree, wanted: NDArray[np.int32], window: int) -> Any:
        """See `Backend.plan_attention`."""
        return self._be.plan_attention(tree, wanted, window)

    def attend(self, q: Floats, k: Floats, v: Floats, plan: Any, heads: tuple[int, int], scale: float) -> Floats:
        """See `Backend.attend`."""
        return self._be.attend(q, k, v, plan, heads, scale)

    def attend_cached(self, q: Floats, cache: LayerCache, seen: Seen, heads: tuple[int, int], scale: float) -> Floats:
        """See `Backend.attend_cached`."""
        return self._be.attend_cached(q, cache, seen, heads, scale)
