"""Files that other tests damage are damaged as they think."""

import struct
from pathlib import Path

import numpy as np
import pytest

from ember.errors import GGUFError, UnsupportedError
from ember.gguf import decode, open_gguf
from tests.foundry import damage
from tests.foundry import gguf_bytes as raw
from tests.foundry.gguf_bytes import Gguf, Tensor


@pytest.fixture
def sound(write) -> Path:
    block = struct.pack("<e32b", 1.0, *range(32))
    return write(Gguf([], [Tensor("blk.5.ffn_down.weight", [32, 3], raw.Q8_0, block * 3)]))


@pytest.mark.parametrize(("half", "kind"), [(damage.NAN, np.isnan), (damage.INFINITY, np.isinf)])
def test_scale_of_one_block(sound: Path, tmp_path: Path, half: int, kind) -> None:
    """N20: the reader opens it and the decoder gives what the bytes say; the engine must name it."""
    file = open_gguf(damage.with_scale(sound, tmp_path / "bad.gguf", "blk.5.ffn_down.weight", half, block=1))
    out = np.empty((3, 32), np.float32)
    decode.decode(file.raw("blk.5.ffn_down.weight"), file.tensors["blk.5.ffn_down.weight"].type, out)
    assert kind(out[1, 1:]).all()
    assert out[0].tolist() == out[2].tolist() == list(range(32))


@pytest.mark.parametrize("number", [36, 24, 250])
def test_type_of_one_tensor(sound: Path, tmp_path: Path, number: int) -> None:
    file = open_gguf(damage.with_type(sound, tmp_path / "bad.gguf", "blk.5.ffn_down.weight", number))
    assert file.tensors["blk.5.ffn_down.weight"].type.id == number
    with pytest.raises(UnsupportedError, match=f"type id {number}"):
        file.check_supported()


def test_truncated(sound: Path, tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match=r"'blk\.5\.ffn_down\.weight': needs bytes up to .* truncated"):
        open_gguf(damage.truncated(sound, tmp_path / "bad.gguf", -1))
