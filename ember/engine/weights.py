"""Weights as float32 [out, in]: decoded into a reusable scratch each time (streamed), or once (resident).

Both give the same bits. A large weight is handed out in slices of rows with fixed borders, so that neither the scratch
nor the product ever grows with the vocabulary, and so that the shape of every product is the same in both ways.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ember.engine.linear import Linear
from ember.gguf import GGUFFile, QuantType
from ember.work import Floats, Tokens

SLICE_BYTES: Final = 64 << 20
"""Decoded bytes of one slice of a layer's weight; the largest linear of a 1B Llama is exactly one."""
HEAD_SLICE_BYTES: Final = 16 << 20
"""The same for the head, whose products are consumed slice by slice."""

Decoder = Callable[[NDArray[np.uint8], QuantType, Floats], None]
Residence = Literal["streamed", "resident"]


@cache
def slice_borders(rows: int, columns: int, limit: int = SLICE_BYTES) -> list[tuple[int, int]]:
    """Cut `rows` into the fewest equal slices of at most `limit` decoded bytes; the last may be shorter."""
    count = max(1, -(-rows * columns * 4 // limit))
    step = -(-rows // count)
    return [(start, min(rows, start + step)) for start in range(0, rows, step)]


class WeightStore:
    """The weights of one file, decoded by one route's decoder."""

    def __init__(self, file: GGUFFile, decoder: Decoder, residence: Residence) -> None:
        self._file = file
        self._decode = decoder
        self.residence = residence
        self._resident: dict[tuple[str, int], Floats] = {}
        self._scratch = np.empty(0, np.float32)

    def slices(self, weight: Linear, limit: int = SLICE_BYTES) -> Iterator[tuple[int, int, Floats]]:
        """Yield (start, stop, rows as float32 [stop - start, in]); streamed rows live until the next slice."""
        for start, stop in slice_borders(weight.out_features, weight.in_features, limit):
            yield start, stop, self._rows(weight, start, stop)

    def _rows(self, weight: Linear, start: int, stop: int) -> Floats:
        if weight.info.type.name == "F32":
            whole: Floats = self._file.view(weight.info.name)
            return whole[weight.first_row + start : weight.first_row + stop]
        if self.residence == "resident":
            key = (weight.info.name, weight.first_row)
            if key not in self._resident:
                out = np.empty((weight.out_features, weight.in_features), np.float32)
                self._decode_rows(weight, 0, weight.out_features, out)
                self._resident[key] = out
            return self._resident[key][start:stop]
        size = (stop - start) * weight.in_features
        if self._scratch.size < size:
            self._scratch = np.empty(size, np.float32)
        out = self._scratch[:size].reshape(stop - start, weight.in_features)
        self._decode_rows(weight, start, stop, out)
        return out

    def _decode_rows(self, weight: Linear, start: int, stop: int, out: Floats) -> None:
        row_bytes, first = weight.info.row_bytes, weight.first_row
        raw = self._file.raw(weight.info.name)[(first + start) * row_bytes : (first + stop) * row_bytes]
        self._decode(raw, weight.info.type, out.reshape(-1))

    def stored(self, weight: Linear) -> NDArray[np.uint8]:
        """Bytes of all rows of a weight as the file holds them, without a copy."""
        row_bytes, first = weight.info.row_bytes, weight.first_row
        return self._file.raw(weight.info.name)[first * row_bytes : (first + weight.out_features) * row_bytes]

    def decode_stored(self, weight: Linear, raw: NDArray[np.uint8], first: int, out: Floats) -> None:
        """Decode rows of `raw`, stored rows of `weight`, from `first` on into out [rows, in]."""
        row_bytes = weight.info.row_bytes
        part = raw[first * row_bytes : (first + len(out)) * row_bytes]
        flat = np.empty(out.size, np.float32)
        self._decode(part, weight.info.type, flat)
        out[...] = flat.reshape(out.shape)

    def gather(self, weight: Linear, rows: Tokens) -> Floats:
        """Decode single rows of an embedding: [T] -> [T, in]; each distinct row once."""
        distinct, where = np.unique(rows, return_inverse=True)
        raw = self._file.raw(weight.info.name).reshape(-1, weight.info.row_bytes)[weight.first_row + distinct]
        out = np.empty((len(distinct), weight.in_features), np.float32)
        self._decode(raw.reshape(-1), weight.info.type, out.reshape(-1))
        return out[where]
