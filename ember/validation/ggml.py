"""The few functions of ggml that a callback needs to read and overwrite tensors of llama.cpp's graph.

Needs llama-cpp-python (extra `reference`), whose own bindings end at llama.h.
"""

import ctypes
import sys
from pathlib import Path
from typing import Any, Final

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from ember.errors import UnsupportedError
from ember.work import Floats

_F32, _I32 = 0, 26
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


def has_source(tensor: int, index: int) -> bool:
    """Return whether the operation that makes a tensor has an operand of this number."""
    return bool(_checked(tensor).src[index])


def source_of(tensor: int, index: int) -> int:
    """Return an operand of the operation that makes a tensor."""
    found = _checked(tensor).src[index]
    if not found:
        raise UnsupportedError(f"{name_of(tensor)} has no operand {index} in this version of llama.cpp")
    return int(found)


def shape_of(tensor: int) -> tuple[int, ...]:
    """Return the four dimensions of a tensor, the contiguous one last."""
    return tuple(_checked(tensor).ne)[::-1]


def parameters_of(tensor: int) -> NDArray[np.int32]:
    """Return what the operation that makes a tensor was told, as ggml stores it: int32 [16], some of them floats."""
    return np.array(_checked(tensor).op_params, np.int32)


def values_of(tensor: int) -> Floats:
    """Copy an F32 tensor, or a view of one: [rows, columns], the contiguous axis last."""
    return _copied(tensor, _F32, np.dtype(np.float32))


def integers_of(tensor: int) -> NDArray[np.int32]:
    """Copy an I32 tensor: [rows, columns]."""
    return _copied(tensor, _I32, np.dtype(np.int32))


def _copied(tensor: int, kind: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    found = _checked(tensor)
    if found.type != kind:
        raise UnsupportedError(f"{name_of(tensor)} has type {found.type} in this version of llama.cpp, expected {kind}")
    data = np.empty(_library.ggml_nbytes(tensor), np.uint8)
    _library.ggml_backend_tensor_get(tensor, data.ctypes.data, 0, data.nbytes)
    strides = tuple(found.nb)[::-1]
    whole = np.lib.stride_tricks.as_strided(data.view(dtype), shape_of(tensor), strides)
    return np.ascontiguousarray(whole).reshape(-1, found.ne[0])


def overwrite(tensor: int, values: Floats) -> None:
    """Put other values, [rows, columns], into a contiguous F32 tensor of that shape."""
    found = _checked(tensor)
    fits = values.nbytes == _library.ggml_nbytes(tensor) and values.shape[-1] == found.ne[0]
    if found.type != _F32 or not fits or not _library.ggml_is_contiguous(tensor):
        raise UnsupportedError(f"{name_of(tensor)} {shape_of(tensor)} cannot be overwritten with {values.shape}")
    data = np.ascontiguousarray(values, np.float32)
    _library.ggml_backend_tensor_set(tensor, data.ctypes.data, 0, data.nbytes)


def _checked(tensor: int) -> _Tensor:
    if _library.ggml_get_name(tensor) - tensor != _Tensor.name.offset:
        raise UnsupportedError(
            f"llama-cpp-python {llama_cpp.__version__} lays out its tensors otherwise than 0.3.36, for which this was "
            "written; install that version"
        )
    return _Tensor.from_address(tensor)
