"""One contender in a process of its own: JSON lines in, JSON lines out (run by `tests.bench`, in any interpreter).

In, once: {"peer", "model", "prompts", "threads", "keep"?, …}; then "run" lines.
Out, once: {"about"}; then {"seconds", "cpu_seconds", "private_bytes"} for each run.
"""

import json
import os
import sys
import time
from typing import Any, TextIO

import numpy as np

from tests.bench.peers import PEERS

UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints must not be taken for an answer
    request = json.loads(sys.stdin.readline())
    disturbing = [name for name in UNSET if name in os.environ]
    if disturbing:
        raise RuntimeError(f"unset {', '.join(disturbing)}: they choose other kernels than the machine's own")
    keep = request.pop("keep", None)
    peer = PEERS[request.pop("peer")](**request)
    states = peer.run()
    if keep:
        np.save(keep, states)
    _answer(answers, {"about": peer.about, "shape": states.shape})
    for _ in sys.stdin:
        started, used = time.perf_counter(), time.process_time()
        peer.run()
        whole = time.perf_counter() - started, time.process_time() - used
        seconds, cpu_seconds = getattr(peer, "timed", None) or whole  # of decoding, the steps alone count
        _answer(answers, {"seconds": seconds, "cpu_seconds": cpu_seconds, "private_bytes": _private(peer)})


def _private(peer: Any) -> int | None:
    found: int | None = peer.private_bytes() if hasattr(peer, "private_bytes") else None
    return found


def _answer(stream: TextIO, record: dict[str, Any]) -> None:
    stream.write(json.dumps(record, default=str) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
