"""Copies of sound GGUF files with one thing wrong in them, for tests of whoever computes with their values."""

import struct
from pathlib import Path

from ember.gguf import open_gguf
from tests.foundry.blocks import SCALES_AT

NAN, INFINITY = 0x7E00, 0x7C00
SCALE_AT = {name: places[0] for name, places in SCALES_AT.items()}
"""Byte of a block's float16 scale (of F16: the value itself)."""


def with_scale(source: Path, target: Path, tensor: str, half: int, block: int = 0) -> Path:
    """Copy a model, giving one block of one tensor the float16 scale with these 16 bits (N20)."""
    with open_gguf(source) as file:
        info = file.tensor(tensor)
    data = bytearray(source.read_bytes())
    struct.pack_into("<H", data, info.offset + block * info.type.type_size + SCALE_AT[info.type.name], half)
    target.write_bytes(data)
    return target


def with_type(source: Path, target: Path, tensor: str, number: int) -> Path:
    """Copy a model, changing the type that its table gives for one tensor (G15)."""
    with open_gguf(source) as file:
        info = file.tensor(tensor)
    data = bytearray(source.read_bytes())
    name = tensor.encode()
    line = data.index(struct.pack("<Q", len(name)) + name + struct.pack("<I", len(info.shape)))
    struct.pack_into("<I", data, line + 8 + len(name) + 4 + 8 * len(info.shape), number)
    target.write_bytes(data)
    return target


def truncated(source: Path, target: Path, size: int) -> Path:
    """Copy the first `size` bytes of a model; a negative `size` leaves off as many (G08)."""
    target.write_bytes(source.read_bytes()[:size])
    return target
