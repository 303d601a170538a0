"""The view of a running tensor that a hook gets: never owned, never resized, gone when the hook returns."""

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from ember.work import Floats


class TensorDType(StrEnum):
    """Element types of tensors shown to hooks."""

    F32 = "f32"


class TensorAccess:
    """Non-owning C-contiguous float32 view [rows, columns] of a tensor of the running model.

    Its methods raise InputError after the hook has returned. An array taken from it must not be kept: the memory is the
    model's, and is written again.
    """

    __slots__ = ("_array", "_closed", "_mutable")

    def __init__(self, array: Floats, *, mutable: bool) -> None:
        assert array.ndim == 2, "a site's tensor has rows and columns"
        assert array.flags.c_contiguous, "rows of one prompt lie together"
        self._array: NDArray[np.float32] = array
        self._mutable = mutable
        self._closed = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows (tokens) and columns (hidden or vocabulary size)."""
        rows, columns = self._open().shape
        return rows, columns

    @property
    def dtype(self) -> TensorDType:
        """Always float32."""
        self._open()
        return TensorDType.F32

    def values(self) -> Floats:
        """Read-only array [rows, columns] over the model's memory."""
        # an array made over a read-only buffer cannot be made writeable again, unlike one whose flag was cleared
        shown: Floats = np.asarray(memoryview(self._open().data).toreadonly())
        return shown

    def values_mut(self) -> Floats:
        """Writeable array [rows, columns] over the model's memory. Raises InputError where `mutates` is False."""
        return self._writeable()[...]

    def zero(self) -> None:
        """Set every value to zero. Raises InputError where `mutates` is False."""
        self._writeable()[...] = 0

    def close(self) -> None:
        """End the view: called when the hook returns."""
        self._closed = True

    def _open(self) -> Floats:
        if self._closed:
            raise InputError("this TensorAccess has ended: use it inside its hook only, and copy what is to be kept")
        return self._array

    def _writeable(self) -> Floats:
        array = self._open()
        if not self._mutable:
            raise InputError("the experiment says mutates = False, so its tensors are read-only; set mutates = True")
        return array
