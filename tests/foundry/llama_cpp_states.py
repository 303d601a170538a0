"""Hidden states out of llama.cpp, by name, through its evaluation callback (needs the extra `reference`).

The settings are those under which llama.cpp computes f32 x f32: F32 KV cache, no flash attention, one thread, one
sequence in a batch. Give it F32 files: for others it rounds the activations as well (see `record_states`).
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# What llama.cpp's graph of the llama family calls the tensors of each site ("-<layer>" is appended where there is one).
PER_LAYER = {"l_out": "l_out", "attn_contrib": "attn_out", "mlp_contrib": "ffn_out"}
ONCE = {"h0": "embd", "result_norm": "result_norm", "logits": "result_output"}

_library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
_library.ggml_get_name.restype = ctypes.c_char_p
_library.ggml_get_name.argtypes = [ctypes.c_void_p]
_library.ggml_nbytes.restype = ctypes.c_size_t
_library.ggml_nbytes.argtypes = [ctypes.c_void_p]
_library.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
_silent = native.llama_log_callback(lambda *_: None)


@dataclass(frozen=True, slots=True)
class Continuation:
    """Greedy ids, and at each step the gap between the two highest logits."""

    ids: NDArray[np.int32]
    margins: Floats


class LlamaCpp:
    """One loaded model and context; a context manager. `threads` and `batch` matter only to benchmarks."""

    def __init__(
        self,
        path: str | Path,
        *,
        context: int,
        threads: int = 1,
        sequences: int = 1,
        kv_type: int = native.GGML_TYPE_F32,
        flash_attention: bool = False,
    ) -> None:
        native.llama_log_set(_silent, None)
        native.llama_backend_init()
        self._model = _loaded(path)
        self.n_layers = native.llama_model_n_layer(self._model)
        self.width = native.llama_model_n_embd(self._model)
        self.vocab_size = native.llama_vocab_n_tokens(native.llama_model_get_vocab(self._model))
        self.context = context
        self.wanted: frozenset[str] = frozenset()
        self._stop_after: str | None = None
        self.taken: dict[str, Floats] = {}
        # The callback is kept here: llama.cpp holds only its address.
        self._callback = native.ggml_backend_sched_eval_callback(self._on_tensor)
        self._context = self._new_context(threads, sequences, kv_type, flash_attention)
        self._batch = native.llama_batch_init(context, 0, sequences)

    def __enter__(self) -> "LlamaCpp":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        native.llama_batch_free(self._batch)
        native.llama_free(self._context)
        native.llama_model_free(self._model)

    def states(self, tokens: Sequence[int], positions: Sequence[int] = (-1,)) -> dict[str, Floats]:
        """Evaluate one prompt and give each key of the goldens at `positions`: [len(positions), (layers,) width]."""
        rows = sorted(position % len(tokens) for position in positions)
        if [position % len(tokens) for position in positions] != rows:
            raise ValueError("positions must ascend: the last layer holds only these rows, in this order")
        self.clear()
        self.wanted = frozenset(ONCE.values()) | {
            f"{name}-{layer}" for name in PER_LAYER.values() for layer in range(self.n_layers)
        }
        self.evaluate([(tokens, 0, 0, frozenset(rows))])
        taken = {name: self._chosen(name, len(tokens), rows) for name in self.wanted}
        self.wanted = frozenset()
        layered = {
            key: np.stack([taken[f"{name}-{layer}"] for layer in range(self.n_layers)], axis=1)
            for key, name in PER_LAYER.items()
        }
        return layered | {key: taken[name] for key, name in ONCE.items()}

    def last_rows(self, prompts: Sequence[Sequence[int]], *, common: int = 0) -> Floats:
        """Evaluate many prompts in one batch and give `l_out` at their last tokens: [prompts, layers, width].

        The evaluation ends at the last layer's output: no logits are computed. The first `common` tokens, the same in
        all prompts, are evaluated once and lent to every sequence.
        """
        names = [f"{PER_LAYER['l_out']}-{layer}" for layer in range(self.n_layers)]
        rests = [prompt[common:] for prompt in prompts]
        ends = np.cumsum([len(rest) for rest in rests]) - 1
        self.clear()
        if common:
            self.evaluate([(prompts[0][:common], 0, 0, frozenset())])
            for sequence in range(1, len(prompts)):
                native.llama_memory_seq_cp(native.llama_get_memory(self._context), 0, sequence, -1, -1)
        self.wanted, self._stop_after = frozenset(names), names[-1]
        self.evaluate([(rest, common, n, frozenset([len(rest) - 1])) for n, rest in enumerate(rests)])
        self.wanted, self._stop_after = frozenset(), None
        return np.stack([self._chosen(name, int(ends[-1]) + 1, ends.tolist()) for name in names], axis=1)

    def greedy(self, tokens: Sequence[int], steps: int) -> Continuation:
        """Continue a prompt with the highest logit (the lowest id among equals), never stopping early."""
        self.clear()
        ids, margins, fed, at = [], [], list(tokens), 0
        for _ in range(steps):
            self.evaluate([(fed, at, 0, frozenset([len(fed) - 1]))])
            logits = self.last_logits()
            ids.append(int(logits.argmax()))
            second, first = np.partition(logits, -2)[-2:]
            margins.append(first - second)
            at, fed = at + len(fed), ids[-1:]
        return Continuation(np.array(ids, np.int32), np.array(margins, np.float32))

    def tokenize(self, text: str) -> list[int]:
        """Give the ids of a text, with the BOS that the file asks for; control tokens spelt out are plain text."""
        encoded = text.encode()
        ids = (native.llama_token * (len(encoded) + 2))()
        vocabulary = native.llama_model_get_vocab(self._model)
        count = native.llama_tokenize(vocabulary, encoded, len(encoded), ids, len(ids), True, False)
        return list(ids[:count])

    def last_logits(self) -> Floats:
        """Copy the logits of the last output row of the last evaluation."""
        pointer = native.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, (self.vocab_size,)).copy()

    def clear(self) -> None:
        """Forget every sequence."""
        native.llama_memory_clear(native.llama_get_memory(self._context), True)

    def evaluate(self, parts: Sequence[tuple[Sequence[int], int, int, frozenset[int]]]) -> None:
        """Evaluate one batch of (tokens, first position, sequence, output rows within tokens)."""
        self.taken.clear()
        row = 0
        for tokens, first, sequence, outputs in parts:
            for offset, token in enumerate(tokens):
                self._batch.token[row] = token
                self._batch.pos[row] = first + offset
                self._batch.n_seq_id[row] = 1
                self._batch.seq_id[row][0] = sequence
                self._batch.logits[row] = offset in outputs
                row += 1
        self._batch.n_tokens = row
        status = native.llama_decode(self._context, self._batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status} for {row} tokens in a context of {self.context}")

    def _new_context(self, threads: int, sequences: int, kv_type: int, flash_attention: bool) -> Callable[..., object]:
        settings = native.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = self.context
        settings.n_seq_max = sequences
        settings.kv_unified = True
        settings.n_threads = settings.n_threads_batch = threads
        settings.type_k = settings.type_v = kv_type
        settings.flash_attn_type = int(flash_attention)
        settings.cb_eval = self._callback
        made = native.llama_init_from_model(self._model, settings)
        if not made:
            raise RuntimeError(f"llama.cpp made no context of {self.context} tokens")
        return made

    def _on_tensor(self, tensor: int, ask: bool, _: object) -> bool:
        name = _library.ggml_get_name(tensor).decode()
        if ask:
            return name in self.wanted
        if name in self.wanted:
            values = np.empty(_library.ggml_nbytes(tensor) // 4, np.float32)
            _library.ggml_backend_tensor_get(tensor, values.ctypes.data, 0, values.nbytes)
            width = self.vocab_size if name == ONCE["logits"] else self.width
            self.taken[name] = values.reshape(-1, width)
        return name != self._stop_after  # false ends the evaluation

    def _chosen(self, name: str, fed: int, rows: list[int]) -> Floats:
        """Take `rows`; what llama.cpp has pruned to the output rows already is these rows."""
        values = self.taken[name]
        if len(values) == len(rows):
            return values
        if len(values) != fed:
            raise RuntimeError(f"{name} has {len(values)} rows, expected {fed} or {len(rows)}")
        return values[rows]


def _loaded(path: str | Path) -> object:
    settings = native.llama_model_default_params()
    settings.n_gpu_layers = 0
    model = native.llama_model_load_from_file(os.fsencode(path), settings)
    if not model:
        raise RuntimeError(f"llama.cpp could not load {path}")
    return model
