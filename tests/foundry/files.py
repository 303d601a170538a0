"""Whole GGUF files through gguf-py: written from keys and tensors, read, and rewritten with other tensor types."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader
from gguf import GGUFValueType as Value
from numpy.typing import NDArray

Keys = dict[str, tuple[Value, Any]]


def write_gguf(
    path: str | Path,
    keys: Keys,
    tensors: Iterable[tuple[str, NDArray[np.generic], Type]],
) -> Path:
    """Write keys (type, value; an array's type is that of its items) and tensors (as stored) with gguf-py's writer."""
    writer = gguf.GGUFWriter(str(path), arch=str(keys.get("general.architecture", (None, "none"))[1]))
    writer.kv_data = [{}]  # the writer puts general.architecture in by itself, which a test may want absent
    for key, (kind, value) in keys.items():
        if isinstance(value, list):
            writer.add_key_value(key, value, Value.ARRAY, kind)
        else:
            writer.add_key_value(key, value, kind)
    for name, stored, type_ in tensors:
        writer.add_tensor(name, stored, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def read_keys(reader: GGUFReader) -> Keys:
    """Give every metadata key as (type, value); an array's type is that of its items."""
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    return {name: (field.types[-1], field.contents()) for name, field in fields.items()}


def recode(
    source: str | Path, target: str | Path, encode: Callable[[str, NDArray[np.float32], Type], Type], *, file_type: int
) -> Path:
    """Write `source` again, every tensor in the type that `encode(name, decoded, old type)` names; keys are kept."""
    reader = GGUFReader(str(source))
    keys = read_keys(reader) | {"general.file_type": (Value.UINT32, file_type)}

    def tensors() -> Iterator[tuple[str, NDArray[np.generic], Type]]:
        for tensor in reader.tensors:
            decoded = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
            kind = encode(tensor.name, decoded, tensor.tensor_type)
            yield tensor.name, decoded if kind == Type.F32 else gguf.quantize(decoded, kind), kind

    return write_gguf(target, keys, tensors())


def dequantised(source: str | Path, target: str | Path) -> Path:
    """Write an F32 copy of a model, and check each of its tensors against the decoded original, bit by bit."""
    recode(source, target, lambda *_: Type.F32, file_type=0)
    copies = {tensor.name: tensor for tensor in GGUFReader(str(target)).tensors}
    for tensor in GGUFReader(str(source)).tensors:
        decoded = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        copy = copies.pop(tensor.name)
        if copy.tensor_type != Type.F32 or copy.data.tobytes() != decoded.tobytes():
            raise RuntimeError(f"{target}: {copy.name} differs from the decoded {tensor.tensor_type.name} original")
    return Path(target)


def tensors_sha256(path: str | Path) -> str:
    """Hash the names, types, shapes and bytes of all tensors: which weights a recording belongs to."""
    digest = hashlib.sha256()
    for tensor in sorted(GGUFReader(str(path)).tensors, key=lambda tensor: str(tensor.name)):
        digest.update(f"{tensor.name} {tensor.tensor_type.name} {tensor.shape.tolist()}\n".encode())
        digest.update(tensor.data.tobytes())
    return digest.hexdigest()
