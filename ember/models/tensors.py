"""Binding tensors to their places in a family, so that every tensor of a file is accounted for."""

import numpy as np

from ember.engine.linear import Linear
from ember.errors import ModelError
from ember.gguf import GGUFFile, TensorInfo
from ember.gguf.decode import decode
from ember.work import Floats


class TensorBinder:
    """Hands out tensors by name and shape; knows at the end which nobody took."""

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture
        self.taken: set[str] = set()
        self.ignored: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the file holds a tensor of this name."""
        return name in self.file.tensors

    def _take(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        info = self.file.tensors.get(name)
        if info is None:
            raise ModelError(
                f"{self.file.path}: {name}: absent, but a {self.architecture} model needs it {list(shape)}"
            )
        if info.shape != shape:
            raise ModelError(
                f"{self.file.path}: {name}: found shape {list(info.shape)}, expected {list(shape)} from the metadata"
            )
        self.taken.add(name)
        return info

    def linear(self, name: str, out_features: int, in_features: int) -> Linear:
        """Take a weight [out, in], left in the file's blocks. Raises ModelError when absent or of another shape."""
        return Linear(self._take(name, (out_features, in_features)), _role(name), 0, out_features)

    def fused(self, name: str, parts: dict[str, int], in_features: int) -> dict[str, Linear]:
        """Take a weight whose rows are several weights one below the other: rows per role, in order.

        Raises ModelError when absent or of another shape.
        """
        info = self._take(name, (sum(parts.values()), in_features))
        made, first = {}, 0
        for role, rows in parts.items():
            made[role] = Linear(info, f"{role}.weight", first, rows)
            first += rows
        return made

    def qkv(self, at: str, sizes: tuple[int, int, int], in_features: int) -> dict[str, Linear]:
        """Take a layer's q, k and v of `sizes` rows: three tensors, or one that holds them in this order.

        llama.cpp's converter writes one `attn_qkv` where asked to fuse. Raises ModelError.
        """
        roles = dict(zip(("attn_q", "attn_k", "attn_v"), sizes, strict=True))
        if self.has(at + "attn_qkv.weight"):
            return self.fused(at + "attn_qkv.weight", roles, in_features)
        return {role: self.linear(f"{at}{role}.weight", rows, in_features) for role, rows in roles.items()}

    def qkv_biases(self, at: str, sizes: tuple[int, int, int]) -> list[Floats]:
        """Take the biases of a layer's q, k and v: one vector where the weights are one tensor. Raises ModelError."""
        if self.has(at + "attn_qkv.weight"):
            return np.split(self.vector(at + "attn_qkv.bias", sum(sizes)), np.cumsum(sizes)[:2])
        roles = ("attn_q", "attn_k", "attn_v")
        return [self.vector(f"{at}{role}.bias", size) for role, size in zip(roles, sizes, strict=True)]

    def vector(self, name: str, length: int) -> Floats:
        """Take a one-dimensional weight, decoded to float32. Raises ModelError when absent or of another shape."""
        info = self._take(name, (length,))
        out = np.empty(length, np.float32)
        decode(self.file.raw(name), info.type, out)
        return out

    def allow(self, name: str) -> None:
        """Mark a tensor that the family read elsewhere as taken."""
        if self.has(name):
            self.taken.add(name)

    def ignore(self, *names: str) -> None:
        """Mark tensors that are known to be without effect."""
        self.ignored.update(name for name in names if self.has(name))

    def finish(self) -> None:
        """Raise ModelError naming tensors that nobody took: running without them would change results silently."""
        left = [name for name in self.file.tensors if name not in self.taken and name not in self.ignored]
        if left:
            shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            raise ModelError(
                f"{self.file.path}: {len(left)} tensors that the {self.architecture} family does not use: {shown}; "
                "the metadata does not describe this file, or it is a variant that is not supported"
            )


def _role(name: str) -> str:
    parts = name.split(".")
    return ".".join(parts[2:]) if parts[0] == "blk" and len(parts) > 2 else name
