"""sarf-nano as a GGUF file: the layout, names and metadata that llama.cpp's converter writes for the llama family."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value
from numpy.typing import NDArray

from tests.foundry.files import Keys, write_gguf
from tests.foundry.sarf.model import SarfNano, Shape
from tests.foundry.sarf.vocabulary import Vocabulary

_MOSTLY_Q8_0: Final = 7


def export(model: SarfNano, vocabulary: Vocabulary, path: Path) -> Path:
    """Write the model with its matrices as Q8_0 and its norms as F32."""
    return write_gguf(path, model_keys(model.shape) | tokenizer_keys(vocabulary), tensors(model))


def model_keys(shape: Shape) -> Keys:
    """Metadata of the model."""
    return {
        "general.architecture": (Value.STRING, "llama"),
        "general.type": (Value.STRING, "model"),
        "general.name": (Value.STRING, "sarf-nano"),
        "general.author": (Value.STRING, "The Ember developers"),
        "general.version": (Value.STRING, "1"),
        "general.description": (Value.STRING, "Arabic roots and patterns to forms; see docs/sarf-nano.md"),
        "general.license": (Value.STRING, "mit"),
        "general.languages": (Value.STRING, ["ar"]),
        "general.file_type": (Value.UINT32, _MOSTLY_Q8_0),
        "general.quantization_version": (Value.UINT32, gguf.GGML_QUANT_VERSION),
        "llama.block_count": (Value.UINT32, shape.n_layers),
        "llama.context_length": (Value.UINT32, shape.context),
        "llama.embedding_length": (Value.UINT32, shape.d),
        "llama.feed_forward_length": (Value.UINT32, shape.ffn),
        "llama.attention.head_count": (Value.UINT32, shape.n_heads),
        "llama.attention.head_count_kv": (Value.UINT32, shape.n_kv),
        "llama.attention.layer_norm_rms_epsilon": (Value.FLOAT32, shape.eps),
        "llama.rope.dimension_count": (Value.UINT32, shape.head_dim),
        "llama.rope.freq_base": (Value.FLOAT32, shape.rope_base),
        "llama.vocab_size": (Value.UINT32, shape.vocab),
    }


def tokenizer_keys(vocabulary: Vocabulary) -> Keys:
    """Metadata of the tokenizer: byte-level BPE split as GPT-2 does, <|begin|> added in front."""
    return {
        "tokenizer.ggml.model": (Value.STRING, "gpt2"),
        "tokenizer.ggml.pre": (Value.STRING, "gpt-2"),
        "tokenizer.ggml.tokens": (Value.STRING, vocabulary.tokens),
        "tokenizer.ggml.token_type": (Value.INT32, vocabulary.types),
        "tokenizer.ggml.merges": (Value.STRING, vocabulary.merges),
        "tokenizer.ggml.bos_token_id": (Value.UINT32, vocabulary.bos_id),
        "tokenizer.ggml.eos_token_id": (Value.UINT32, vocabulary.eos_id),
        "tokenizer.ggml.padding_token_id": (Value.UINT32, vocabulary.eos_id),
        "tokenizer.ggml.add_bos_token": (Value.BOOL, True),
        "tokenizer.ggml.add_eos_token": (Value.BOOL, False),
    }


def tensors(model: SarfNano) -> Iterator[tuple[str, NDArray[np.generic], Type]]:
    """Give the weights under llama.cpp's names; torch's Linear is [out, in] already, and rotates neighbouring pairs."""
    for name, weight in model.state_dict().items():
        values = weight.numpy()
        if values.ndim == 1:
            yield name, values, Type.F32
        else:
            yield name, gguf.quantize(values, Type.Q8_0), Type.Q8_0


def load(path: Path) -> SarfNano:
    """Read a file that `export` wrote, its matrices decoded to F32."""
    reader = gguf.GGUFReader(str(path))
    shape = Shape(vocab=len(reader.fields["tokenizer.ggml.tokens"].data))
    decoded = {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    model = SarfNano(shape)
    model.load_state_dict({name: torch.from_numpy(np.array(values, np.float32)) for name, values in decoded.items()})
    return model.eval()
