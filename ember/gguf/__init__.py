"""Reading GGUF files: mapped once, checked before use, never copied, never transposed.

    with open_gguf("model.gguf") as file:
        file.metadata["general.architecture"], file.tensors["token_embd.weight"].shape, file.raw("token_embd.weight")

Values are decoded by `ember.gguf.decode` (NumPy) and `ember.gguf.decode_fast` (numba), which give the same bits.
"""

from ember.gguf.file import GGUFFile, open_gguf
from ember.gguf.mapping import Part
from ember.gguf.metadata import StringArray
from ember.gguf.tensors import TensorInfo
from ember.gguf.types import QUANT_TYPES, QuantType

__all__ = ["QUANT_TYPES", "GGUFFile", "Part", "QuantType", "StringArray", "TensorInfo", "open_gguf"]
