"""Writes `ember/gguf/grid_data.py` from the tables of the `gguf` package, so that decoding needs no such package.

python -m tests.foundry.iq_grids > ember/gguf/grid_data.py
"""

import base64
from typing import Any

import numpy as np
from gguf import quants
from numpy.typing import NDArray

WIDTH = 112
HEADER = '''"""The grids of the IQ types, packed: written by `tests.foundry.iq_grids`, unpacked by `ember.gguf.grids`.

They are ggml's constants (`ggml-common.h`: iq2xxs_grid, iq2xs_grid, iq2s_grid, iq3xxs_grid, iq3s_grid, iq1s_grid;
https://github.com/ggml-org/llama.cpp, MIT, copyright 2023-2026 The ggml authors). A point is 8 or 4 levels; each level
is stored as its index in LEVELS, in the fewest bits, lowest bit first, all points behind one another, in base 85.
Kernels have them compiled in, hence their cache must know this file too: its key covers files that name numba_support.
"""

from typing import Final

'''


def their_grid(type_name: str) -> NDArray[np.float32]:
    """Return gguf-py's grid of an IQ type, [points, 8 or 4]."""
    kind: Any = getattr(quants, type_name)
    kind.init_grid()
    return kind.grid.reshape(kind.grid_shape)


GRID_TYPES = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")


def packed(grid: NDArray[np.float32], levels: tuple[int, ...]) -> str:
    """Give the indexes of a grid's levels as base 85 of their bits."""
    bits = (len(levels) - 1).bit_length()
    index = np.searchsorted(levels, grid.ravel()).astype(np.uint8)
    rows = np.unpackbits(index[:, None], axis=1, count=bits, bitorder="little")
    return base64.b85encode(np.packbits(rows, bitorder="little").tobytes()).decode()


def module() -> str:
    levels, points = [], []
    for name in GRID_TYPES:
        kind: Any = getattr(quants, name)
        levels.append(f'    "{name}": {tuple(kind.grid_map)},\n')
        text = packed(their_grid(name), kind.grid_map)
        lines = [text[at : at + WIDTH] for at in range(0, len(text), WIDTH)]
        points.append(f'    "{name}": (\n' + "".join(f'        "{line}"\n' for line in lines) + "    ),\n")
    shapes = "".join(f'    "{name}": {getattr(quants, name).grid_shape},\n' for name in GRID_TYPES)
    return (
        f"{HEADER}SHAPES: Final = {{\n{shapes}}}\nLEVELS: Final = {{\n{''.join(levels)}}}\n"
        f"POINTS: Final = {{\n{''.join(points)}}}\n"
    )


if __name__ == "__main__":
    print(module(), end="")
