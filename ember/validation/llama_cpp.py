"""Hidden states out of llama.cpp, by name, through its evaluation callback (needs the extra `reference`).

The settings are those under which llama.cpp computes f32 x f32: F32 KV cache, no flash attention, one thread, one
sequence in a batch. Give it F32 files: with others it rounds the activations as well.

With `exact` the callback also replaces what llama.cpp's operators GELU and ROPE made (see `exact_operators`).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from ember.errors import EmberError, UnsupportedError
from ember.validation import ggml
from ember.validation.exact_operators import EXACT
from ember.work import Floats

VERSION: Final = str(llama_cpp.__version__)
_silent = native.llama_log_callback(lambda *_: None)


@dataclass(frozen=True, slots=True)
class Names:
    """What a family's graph calls the tensors of each site ("-<layer>" is appended where there is one)."""

    h0: str
    attention: str | None
    """None: without a name, an operand of `ffn_inp`."""
    mlp: str


GRAPHS: Final = {
    "gpt2": Names("inpL", None, "ffn_out"),
    "llama": Names("embd", "attn_out", "ffn_out"),
    "qwen2": Names("embd", None, "ffn_out"),
    "qwen3": Names("embd", None, "ffn_out"),
    "gemma3": Names("inp_scaled", "attn_post_norm", "ffn_post_norm"),
    "gemma4": Names("inp_scaled", "attn_post_norm", "ffn_post_norm"),
}
LAYER_OUT: Final = "l_out"
AFTER_ATTENTION: Final = "ffn_inp"
UNNAMED_ATTENTION: Final = "attention"
"""Our own name for the operand of `ffn_inp`."""
NORMED: Final = "result_norm"
LOGITS: Final = "result_output"


class Continuation(NamedTuple):
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
        exact: bool = False,
    ) -> None:
        native.llama_log_set(_silent, None)
        native.llama_backend_init()
        self._model = _loaded(path)
        self.architecture = _architecture(self._model)
        if self.architecture not in GRAPHS:
            known = ", ".join(GRAPHS)
            raise UnsupportedError(f"{path}: the graph of {self.architecture!r} is not known; known are {known}")
        self._names = GRAPHS[self.architecture]
        self.n_layers = native.llama_model_n_layer(self._model)
        self.width = native.llama_model_n_embd(self._model)
        self.vocab_size = native.llama_vocab_n_tokens(native.llama_model_get_vocab(self._model))
        self.context = context
        self.wanted: frozenset[str] = frozenset()
        self.taken: dict[str, Floats] = {}
        self._stop_after: str | None = None
        self.exact = exact
        # Operands lie intact only until the next node: where they are read, each node is computed by itself.
        self._stepwise = exact or self._names.attention is None
        self._better: Floats | None = None
        self._failure: Exception | None = None
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
        per_layer = {
            "l_out": LAYER_OUT,
            "attn_contrib": self._names.attention or UNNAMED_ATTENTION,
            "mlp_contrib": self._names.mlp,
        }
        once = {"h0": self._names.h0, "result_norm": NORMED, "logits": LOGITS}
        self.clear()
        self.wanted = frozenset(once.values()) | {
            f"{name}-{layer}" for name in per_layer.values() for layer in range(self.n_layers)
        }
        self.evaluate([(tokens, 0, 0, frozenset(rows))])
        taken = {name: self._chosen(name, len(tokens), rows) for name in self.wanted}
        self.wanted = frozenset()
        layered = {
            key: np.stack([taken[f"{name}-{layer}"] for layer in range(self.n_layers)], axis=1)
            for key, name in per_layer.items()
        }
        return layered | {key: taken[name] for key, name in once.items()}

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
        count = native.llama_tokenize(vocabulary, encoded, len(encoded), ids, len(ids), True, False)  # noqa: FBT003
        return list(ids[:count])

    def last_logits(self) -> Floats:
        """Copy the logits of the last output row of the last evaluation."""
        pointer = native.llama_get_logits_ith(self._context, -1)
        values: Floats = np.ctypeslib.as_array(pointer, (self.vocab_size,)).copy()
        return values

    def clear(self) -> None:
        """Forget every sequence."""
        native.llama_memory_clear(native.llama_get_memory(self._context), True)  # noqa: FBT003

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
        if self._failure is not None:
            raise self._failure
        if status:
            raise EmberError(f"llama_decode returned {status} for {row} tokens in a context of {self.context}")

    def _chosen(self, name: str, fed: int, rows: list[int]) -> Floats:
        """Take `rows` of what was evaluated; what is pruned to the output rows already is these rows."""
        values = self.taken[name]
        if len(values) == len(rows):
            return values
        if len(values) != fed:
            raise EmberError(f"{name} has {len(values)} rows, expected {fed} or {len(rows)}")
        return values[rows]

    def _new_context(self, threads: int, sequences: int, kv_type: int, flash_attention: bool) -> Any:  # noqa: FBT001
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
            raise EmberError(f"llama.cpp made no context of {self.context} tokens")
        return made

    def _on_tensor(self, tensor: int, ask: bool, _: object) -> bool:  # noqa: FBT001
        try:
            return self._before(tensor) if ask else self._after(tensor)
        except Exception as error:  # raised again by `evaluate`: an exception cannot pass through C
            self._failure = error
            return False

    def _before(self, tensor: int) -> bool:
        """Answer whether a node is to be seen once computed; stepwise, everything before it has been computed."""
        name = ggml.name_of(tensor)
        if not self._stepwise:
            return name in self.wanted
        if self.exact and ggml.operation_of(tensor) in EXACT:
            self._better = EXACT[ggml.operation_of(tensor)](tensor)
        node, _, layer = name.partition("-")
        if node == AFTER_ATTENTION and f"{UNNAMED_ATTENTION}-{layer}" in self.wanted:
            self.taken[f"{UNNAMED_ATTENTION}-{layer}"] = ggml.values_of(ggml.source_of(tensor, 0))
        return True

    def _after(self, tensor: int) -> bool:
        """Take a computed node; false ends the evaluation."""
        if self._better is not None:
            ggml.overwrite(tensor, self._better)
            self._better = None
        name = ggml.name_of(tensor)
        if name in self.wanted:
            self.taken[name] = ggml.values_of(tensor)
        return name != self._stop_after


def _loaded(path: str | Path) -> Any:
    settings = native.llama_model_default_params()
    settings.n_gpu_layers = 0
    model = native.llama_model_load_from_file(os.fsencode(path), settings)
    if not model:
        raise EmberError(f"{path}: llama.cpp {VERSION} would not load it; an older or newer llama-cpp-python may")
    return model


def _architecture(model: Any) -> str:
    buffer = native.ctypes.create_string_buffer(64)
    native.llama_model_meta_val_str(model, b"general.architecture", buffer, len(buffer))
    return bytes(buffer.value).decode()
