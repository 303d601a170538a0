"""The few functions of ggml that a callback needs to read and overwrite tensors of llama.cpp's graph.

Needs llama-cpp-python (extra `reference`), whose own bindings end at llama.h.
"""

import ctypes
import sys
from pathlib import Path
from typing import Final

import llama_cpp
import numpy as np

from ember.work import Floats

_F32: Final = 0
_MAX_SOURCES: Final = 10
_SUFFIX: Final = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
_PREFIX: Final = "" if sys.platform == "win32" else "lib"


class _Tensor(ctypes.Structure):
    """`struct ggml_tensor` (ggml.h) up to its name; `_checked` compares the layout with the library's."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * _MAX_SOURCES),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
    )


_library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / f"{_PREFIX}ggml-base{_SUFFIX}"))
_library.ggml_get_name.restype = ctypes.c_void_p
_library.ggml_get_name.argtypes = [ctypes.c_void_p]
_library.ggml_op_desc.restype = ctypes.c_char_p
_library.ggml_op_desc.argtypes = [ctypes.c_void_p]
_library.ggml_nbytes.restype = ctypes.c_size_t
_library.ggml_nbytes.argtypes = [ctypes.c_void_p]
_library.ggml_is_contiguous.restype = ctypes.c_bool
_library.ggml_is_contiguous.argtypes = [ctypes.c_void_p]
for _access in (_library.ggml_backend_tensor_get, _library.ggml_backend_tensor_set):
    _access.restype = None
    _access.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]


def name_of(tensor: int) -> str:
    """Return what the graph calls a tensor."""
    return ctypes.string_at(_library.ggml_get_name(tensor)).decode()


def operation_of(tensor: int) -> str:
    """Return the operation that makes a tensor, e.g. `MUL_MAT` or `GELU`."""
    return bytes(_library.ggml_op_desc(tensor)).decode()


def source_of(tensor: int, index: int) -> int | None:
    """Return an operand of the operation that makes a tensor; None if it has no such operand."""
    found: int | None = _checked(tensor).src[index]
    return found


def values_of(tensor: int) -> Floats:
    """Copy an F32 tensor: [rows, columns], the contiguous axis last."""
    values = np.empty(_shape(tensor), np.float32)
    _library.ggml_backend_tensor_get(tensor, values.ctypes.data, 0, values.nbytes)
    return values


def overwrite(tensor: int, values: Floats) -> None:
    """Put other values into an F32 tensor of the same shape."""
    if values.shape != _shape(tensor) or values.dtype != np.float32 or not values.flags.c_contiguous:
        raise RuntimeError(f"{name_of(tensor)}: {values.dtype} {values.shape} does not fit {_shape(tensor)}")
    _library.ggml_backend_tensor_set(tensor, values.ctypes.data, 0, values.nbytes)


def _shape(tensor: int) -> tuple[int, int]:
    found = _checked(tensor)
    if found.type != _F32 or not _library.ggml_is_contiguous(tensor):
        raise RuntimeError(f"{name_of(tensor)} is not a contiguous F32 tensor in this version of llama.cpp")
    columns = int(found.ne[0])
    return int(_library.ggml_nbytes(tensor)) // 4 // columns, columns


def _checked(tensor: int) -> _Tensor:
    if _library.ggml_get_name(tensor) - tensor != _Tensor.name.offset:
        raise RuntimeError(
            f"llama-cpp-python {llama_cpp.__version__} lays out its tensors otherwise than 0.3.36, for which this was "
            "written; install that version"
        )
    return _Tensor.from_address(tensor)
