"""A vocabulary in llama.cpp, by llama-cpp-python (extra `reference`)."""

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp


@llama_cpp.llama_log_callback
def _silence(level: int, text: bytes, user_data: Any) -> None:
    """Drop what llama.cpp logs."""


llama_cpp.llama_log_set(_silence, ctypes.c_void_p(0))


class LlamaCpp:
    """A vocabulary in llama.cpp."""

    def __init__(self, path: Path) -> None:
        self._llama = llama_cpp.Llama(model_path=str(path), vocab_only=True, verbose=False)

    def ids(self, text: str, *, special: bool = False) -> list[int]:
        found: list[int] = self._llama.tokenize(text.encode(), add_bos=False, special=special)
        return found

    def adds_bos(self) -> bool:
        vocabulary = llama_cpp.llama_model_get_vocab(self._llama._model.model)
        return bool(llama_cpp.llama_vocab_get_add_bos(vocabulary))

    def text(self, ids: list[int]) -> bytes:
        """Return what llama.cpp makes of the ids of a whole text."""
        buffer = ctypes.create_string_buffer(1 << 20)
        row = (ctypes.c_int32 * len(ids))(*ids)
        vocabulary = llama_cpp.llama_model_get_vocab(self._llama._model.model)
        size = llama_cpp.llama_detokenize(vocabulary, row, len(ids), buffer, len(buffer), False, True)
        return buffer.raw[:size]
