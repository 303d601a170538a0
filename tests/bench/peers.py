"""What is timed against each other: one class for each contender, told what to load, asked for rounds.

A peer takes token ids and gives, for every prompt, the residual stream after every layer at its last token. Each lives
in a process of its own (see `worker`), some in another interpreter; they import what they need when made.
"""

import os
import platform
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tests.bench.decoders import EmberDecoder, LlamaCppDecoder
from tests.bench.workload import common_prefix, rows_after_sharing

Prompts = list[list[int]]
States = NDArray[np.float32]  # [prompts, layers, hidden]


class Peer(Protocol):
    """A contender, loaded and warm."""

    about: dict[str, Any]

    def run(self) -> States: ...


class EmberPeer:
    """Ember through its Python API; `streamed`: weights are decoded anew for every unit."""

    def __init__(self, model: str, prompts: Prompts, threads: int, *, streamed: bool = False, **_: Any) -> None:
        import ember
        from ember.bench import private_bytes

        self._prompts, self.private_bytes = prompts, private_bytes
        self._model = ember.open(model, threads=threads, memory_budget=0 if streamed else None)
        self.about = {"name": "Ember", "version": ember.__version__, "numerics": self._model.numerics()}

    def run(self) -> States:
        return self._model.capture(tokens=self._prompts, site="after_layer", layers="all")["after_layer"]


class CeilingPeer:
    """The matrix products of the same rows and nothing else: what no engine on this BLAS can pass."""

    def __init__(self, model: str, prompts: Prompts, threads: int, *, shared: bool, **_: Any) -> None:
        from threadpoolctl import threadpool_info, threadpool_limits

        from ember.bench import Products, product_flops
        from ember.gguf import open_gguf

        self._limits = threadpool_limits(threads, user_api="blas")
        rows = rows_after_sharing(prompts) if shared else sum(map(len, prompts))
        file = open_gguf(model)
        self._products = Products(file, rows, len(prompts))
        self.about = {
            "name": f"matrix products alone, {rows} rows",
            "blas": threadpool_info(),
            "flops": product_flops(file, rows, len(prompts)),
        }

    def run(self) -> States:
        self._products.run()
        return np.empty((0, 0, 0), np.float32)


class PeakPeer:
    """Large square products: what this BLAS can do."""

    SIZE, REPEATS = 2048, 4

    def __init__(self, model: str, prompts: Prompts, threads: int, **_: Any) -> None:
        from threadpoolctl import threadpool_info, threadpool_limits

        self._limits = threadpool_limits(threads, user_api="blas")
        self._a = np.random.default_rng(0).standard_normal((self.SIZE, self.SIZE), np.float32)
        self._out = np.empty_like(self._a)
        flops = 2.0 * self.SIZE**3 * self.REPEATS
        self.about = {"name": "square products", "blas": threadpool_info(), "flops": flops}

    def run(self) -> States:
        for _ in range(self.REPEATS):
            np.matmul(self._a, self._a.T, out=self._out)
        return np.empty((0, 0, 0), np.float32)


class LlamaCppPeer:
    """llama.cpp with a callback on every `l_out`: whole prompts, as many in a batch as is fastest.

    `variant` tries settings: tokens in a batch, type of the KV cache, flash attention, and whether the tokens common to
    all prompts are evaluated once and lent to every batch (a user would have to write that). The callback ends each
    evaluation at the last layer's output, so that no logits are computed.
    """

    def __init__(self, model: str, prompts: Prompts, threads: int, *, variant: dict[str, Any], **_: Any) -> None:
        import llama_cpp
        from llama_cpp import llama_cpp as native

        from tests.bench.llama_cpp import Lender

        self._common = common_prefix(prompts) if variant["common"] else 0
        self._groups = _groups(prompts, variant["batch"], self._common)
        self._llama = Lender(
            model,
            context=self._common + max(sum(len(one) - self._common for one in group) for group in self._groups),
            threads=threads,
            sequences=max(map(len, self._groups)) + 1,
            kv_type=getattr(native, f"GGML_TYPE_{variant['kv']}"),
            flash_attention=variant["flash"],
        )
        features = native.llama_print_system_info().decode().replace(" = 1", "").split(" | ")
        self.about = {
            "name": "llama.cpp",
            "version": llama_cpp.__version__,
            "settings": variant,
            "system": " ".join(features),
        }

    def run(self) -> States:
        if self._common:
            return self._llama.lent_rows(self._groups, self._common)
        return np.concatenate([self._llama.last_rows(group) for group in self._groups])


class TransformersPeer:
    """Hugging Face in float32: padded batches, all hidden states of the base model."""

    def __init__(self, model: str, prompts: Prompts, threads: int, *, variant: dict[str, Any], **_: Any) -> None:
        import torch
        import transformers

        from tests.foundry.transformers_llama import transformers_llama

        torch.set_num_threads(threads)
        self._torch = torch
        self._model = transformers_llama(model)
        self._batches = [
            prompts[start : start + variant["batch"]] for start in range(0, len(prompts), variant["batch"])
        ]
        self.about = {
            "name": "Hugging Face transformers, float32",
            "version": f"{transformers.__version__}, torch {torch.__version__}",
            "settings": variant,
            "system": torch.backends.cpu.get_cpu_capability(),
        }

    def run(self) -> States:
        with self._torch.inference_mode():
            return np.concatenate([self._batch(batch) for batch in self._batches])

    def _batch(self, prompts: Prompts) -> States:
        lengths = np.array([len(prompt) for prompt in prompts])
        ids = np.zeros((len(prompts), lengths.max()), np.int64)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt)] = prompt
        mask = self._torch.from_numpy((np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64))
        output = self._model(
            self._torch.from_numpy(ids), attention_mask=mask, output_hidden_states=True, use_cache=False
        )
        last = self._torch.from_numpy(lengths - 1)
        rows = self._torch.arange(len(prompts))
        # transformers norms its last hidden state; the others are the residual stream after each layer.
        return self._torch.stack([layer[rows, last] for layer in output.hidden_states[1:]], dim=1).numpy()


PEERS: dict[str, type[Any]] = {
    "ember": EmberPeer,
    "ceiling": CeilingPeer,
    "llama.cpp": LlamaCppPeer,
    "transformers": TransformersPeer,
    "peak": PeakPeer,
    "ember decoding": EmberDecoder,
    "llama.cpp decoding": LlamaCppDecoder,
}


def machine() -> dict[str, Any]:
    """Name the processor as the kernel does, and say how many processes want to run (the mean of 15 minutes)."""
    with Path("/proc/cpuinfo").open() as lines:
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[2], 1),
        "python": platform.python_version(),
    }


def _groups(prompts: Prompts, batch: int, common: int) -> list[Prompts]:
    """Cut into runs of whole prompts of at most `batch` tokens, those in common not counted."""
    groups: list[Prompts] = [[]]
    room = batch
    for prompt in prompts:
        size = len(prompt) - common
        if groups[-1] and size > room:
            groups.append([])
            room = batch
        groups[-1].append(prompt)
        room -= size
    return groups
