"""What one open model computes with: route, backend, threads, and how its weights are kept."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import threadpoolctl

from ember.engine.backend import Backend
from ember.engine.blas_threads import BLAS_THREADS
from ember.engine.reference import ReferenceBackend
from ember.engine.team import Team
from ember.engine.weights import Residence, WeightStore
from ember.errors import InputError
from ember.gguf import GGUFFile
from ember.gguf.decode import decode as decode_numpy
from ember.numba_support import HAVE_NUMBA

ROUTES = ("auto", "reference", "fast")


@dataclass(frozen=True, slots=True)
class Session:
    """Settings of an open model; they decide time and memory, and the route decides bits."""

    route: str
    backend: Backend
    residence: Residence
    threads: int
    _controller: threadpoolctl.ThreadpoolController
    _busy: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @classmethod
    def make(
        cls, file: GGUFFile, route: str, threads: int, budget: int, controller: threadpoolctl.ThreadpoolController
    ) -> "Session":
        """Resolve `auto`, choose streamed or resident weights, build the backend. Raises InputError."""
        resolved = resolve_route(route)
        residence: Residence = "resident" if file.decoded_bytes <= budget else "streamed"
        return cls(resolved, _backend(file, resolved, residence, threads), residence, threads, controller)

    def limits(self) -> AbstractContextManager[None]:
        """Hold BLAS to this session's threads; environment variables of users and schedulers do not count."""
        return BLAS_THREADS.held(self._controller, self.threads)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Have the backend's memory to oneself, within `limits`.

        Raises InputError while another evaluation goes on: its tensors would be written over.
        """
        if not self._busy.acquire(blocking=False):
            raise InputError(
                "this model is in the middle of an evaluation: what a hook, a listener or another thread wants to "
                "evaluate meanwhile needs a model of its own; open the file once more with ember.open"
            )
        try:
            with self.limits():
                yield
        finally:
            self._busy.release()

    def describe(self) -> dict[str, str]:
        """Name what computes in each phase, for the tensor contract."""
        return {
            "weights": self.residence,
            "prefill_matmul": "BLAS sgemm on decoded float32 rows",
            "prefill_attention": "canonical tiles of 32 queries, BLAS sgemm"
            if self.route == "reference"
            else "one query a row, keys in ascending order, 16 float32 lanes, numba kernel",
            "decode_matmul": "BLAS sgemm on decoded float32 rows, padded"
            if self.route == "reference"
            else "packed weights times rows, 16 float32 lanes, numba kernel",
            "decode_attention": "one query a sequence, keys in ascending order"
            + (", numba kernel" if self.route == "fast" else ", NumPy"),
            "elementwise": "numba kernels" if self.route == "fast" else "NumPy",
        }


def resolve_route(route: str) -> str:
    """Return `reference` or `fast`. Raises InputError for others, and for `fast` without numba."""
    if route not in ROUTES:
        raise InputError(f"route {route!r}: expected one of {', '.join(ROUTES)}")
    if route == "fast" and not HAVE_NUMBA:
        raise InputError(
            "route 'fast' needs numba, which is not installed: pip install 'ember[fast]', or use 'reference'"
        )
    if route == "auto":
        return "fast" if HAVE_NUMBA else "reference"
    return route


def _backend(file: GGUFFile, route: str, residence: Residence, threads: int) -> Backend:
    if route == "reference":
        return ReferenceBackend(WeightStore(file, decode_numpy, residence))
    from ember.engine.fast import FastBackend  # compiles or loads kernels
    from ember.gguf import decode_fast

    decode_fast.prepare({info.type for info in file.tensors.values()})
    return FastBackend(WeightStore(file, decode_fast.decode, residence), Team(threads))
