"""llama.cpp as its users would drive it for these rows: prefixes lent to sequences, and greedy decoding in lockstep."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from ember.work import Floats
from tests.foundry.llama_cpp_states import LAYER_OUT, LlamaCpp

_silent = native.llama_log_callback(lambda *_: None)


class Lender(LlamaCpp):
    """Evaluates the tokens that all prompts share once, and lends them to the sequences of every batch."""

    def lent_rows(self, groups: Sequence[Sequence[Sequence[int]]], common: int) -> Floats:
        """`l_out` of every layer at the last token of all prompts: [prompts, layers, width]."""
        memory = native.llama_get_memory(self._context)
        self.clear()
        self.evaluate([(groups[0][0][:common], 0, 0, frozenset())])
        found = []
        for group in groups:
            for sequence in range(1, len(group) + 1):
                native.llama_memory_seq_cp(memory, 0, sequence, -1, -1)
            found.append(self._rests([prompt[common:] for prompt in group], common))
            for sequence in range(1, len(group) + 1):
                native.llama_memory_seq_rm(memory, sequence, -1, -1)
        return np.concatenate(found)

    def _rests(self, rests: Sequence[Sequence[int]], common: int) -> Floats:
        names = [f"{LAYER_OUT}-{layer}" for layer in range(self.n_layers)]
        ends = np.cumsum([len(rest) for rest in rests]) - 1
        self.wanted, self._stop_after = frozenset(names), names[-1]
        self.evaluate([(rest, common, n + 1, frozenset([len(rest) - 1])) for n, rest in enumerate(rests)])
        self.wanted, self._stop_after = frozenset(), None
        return np.stack([self._chosen(name, int(ends[-1]) + 1, ends.tolist()) for name in names], axis=1)


class Decoder:
    """Continues prompts greedily, all in one batch a step; no callback looks on."""

    def __init__(self, path: str, sequences: int, context: int, *, threads: int, flash: bool) -> None:
        native.llama_log_set(_silent, None)
        native.llama_backend_init()
        settings = native.llama_model_default_params()
        settings.n_gpu_layers = 0
        self._model = native.llama_model_load_from_file(path.encode(), settings)
        asked = native.llama_context_default_params()
        asked.n_ctx, asked.n_batch, asked.n_seq_max, asked.kv_unified = context, context, sequences, True
        asked.n_threads = asked.n_threads_batch = threads
        asked.flash_attn_type = int(flash)
        self._context = native.llama_init_from_model(self._model, asked)
        if not self._context:
            raise RuntimeError(f"llama.cpp made no context of {context} tokens for {path}")
        self._vocab = native.llama_vocab_n_tokens(native.llama_model_get_vocab(self._model))
        self._batch = native.llama_batch_init(context, 0, 1)
        self.timed: tuple[float, float] | None = None
        """Seconds and processor seconds of the steps after the prompts."""

    def greedy(self, prompts: Sequence[Sequence[int]], steps: int) -> NDArray[np.int64]:
        """Return `steps` tokens after each prompt, [prompts, steps]."""
        native.llama_memory_clear(native.llama_get_memory(self._context), True)
        rows = [(t, p, s, p == len(one) - 1) for s, one in enumerate(prompts) for p, t in enumerate(one)]
        tokens = self._next(rows, len(prompts))
        made = [tokens]
        started, used = time.perf_counter(), time.process_time()
        for step in range(steps - 1):
            fed = [(int(t), len(prompts[s]) + step, s, True) for s, t in enumerate(tokens)]
            tokens = self._next(fed, len(prompts))
            made.append(tokens)
        self.timed = time.perf_counter() - started, time.process_time() - used
        return np.stack(made, axis=1)

    def _next(self, rows: Sequence[tuple[int, int, int, bool]], outputs: int) -> Any:
        """Feed (token, position, sequence, wanted) rows; returns the likeliest token of each wanted one."""
        batch = self._batch
        for n, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.logits[n] = token, position, 1, wanted
            batch.seq_id[n][0] = sequence
        batch.n_tokens = len(rows)
        status = native.llama_decode(self._context, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status} for {len(rows)} tokens")
        logits = np.ctypeslib.as_array(native.llama_get_logits(self._context), (outputs, self._vocab))
        return logits.argmax(axis=1)
