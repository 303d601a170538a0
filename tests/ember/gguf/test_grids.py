"""The tables of the IQ types and of four-bit floats against gguf-py's, and the file of the grids against its maker."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from gguf import quants

from ember.gguf import grid_data, grids
from tests.foundry.iq_grids import GRID_TYPES, module, their_grid


@pytest.mark.parametrize("name", GRID_TYPES)
def test_grids_are_those_of_gguf_py(name: str) -> None:
    ours = grids.IQ1 if name == "IQ1_S" else getattr(grids, name)
    assert ours.dtype == np.int8
    assert np.array_equal(ours, their_grid(name))
    assert len(np.unique(ours, axis=0)) == len(ours), "every point once"


def test_the_file_is_what_its_maker_writes() -> None:
    assert Path(grid_data.__file__).read_text() == module()


def test_levels_are_those_of_gguf_py() -> None:
    assert tuple(grids.IQ4_LEVELS.tolist()) == quants.IQ4_NL.kvalues
    assert tuple(grids.FP4_LEVELS.tolist()) == quants.MXFP4.kvalues == quants.NVFP4.kvalues
    assert bytes(grids.EVEN_SIGNS) == quants.IQ2_XXS.ksigns


def test_signs() -> None:
    assert grids.SIGNS[0b10000101].tolist() == [-1, 1, -1, 1, 1, 1, 1, -1]
    assert ((grids.SIGNS[grids.EVEN_SIGNS] < 0).sum(axis=1) % 2 == 0).all()


def test_scales_of_a_byte_are_those_of_gguf_py() -> None:
    every = np.arange(256, dtype=np.uint8)
    with np.errstate(all="ignore"):
        exponents, floats = quants.MXFP4.e8m0_to_fp32_half(every), quants.NVFP4.ue4m3_to_fp32(every)
    assert np.array_equal(grids.E8M0_HALVES.view(np.uint32), exponents.view(np.uint32))
    assert np.array_equal(grids.E4M3_HALVES, floats)
    assert not np.signbit(grids.E4M3_HALVES).any()


@pytest.mark.parametrize("name", ["IQ2_XXS", "IQ1", "SIGNS", "EVEN_SIGNS", "IQ4_LEVELS", "FP4_LEVELS", "E4M3_HALVES"])
def test_tables_cannot_be_changed(name: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(grids, name)[0] = 0


@pytest.mark.parametrize("table", [grids, grid_data])
def test_the_cache_of_kernels_knows_the_tables(table: ModuleType) -> None:
    """They are constants in compiled code, whose key covers every file that names numba_support."""
    assert "numba_support" in Path(str(table.__file__)).read_text()
