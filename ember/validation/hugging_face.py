"""Every family by Hugging Face transformers in float64, from a GGUF file (needs the extra `reference`).

transformers' own GGUF loader ignores frequency factors and Gemma's scaling and does not load all families; here the
file is read by Ember's reader and put into transformers' models (`hugging_face_files`). transformers computes norms,
softmax and RoPE angles in float32 whatever the model's type; here its name for float32 stands for float64, so that
every product, norm and angle is one of float64.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, Final

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import (
    Gemma3TextConfig,
    Gemma3TextModel,
    Gemma4TextConfig,
    Gemma4TextModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    Qwen2Config,
    Qwen2Model,
    Qwen3Config,
    Qwen3Model,
)

from ember.errors import UnsupportedError
from ember.gguf import GGUFFile, open_gguf
from ember.validation.hugging_face_files import Translated

Doubles = NDArray[np.float64]
VERSION: Final = f"{transformers.__version__}, torch {torch.__version__}"
MODELS: Final[dict[str, tuple[Any, Any]]] = {
    "gpt2": (GPT2Config, GPT2Model),
    "llama": (LlamaConfig, LlamaModel),
    "qwen2": (Qwen2Config, Qwen2Model),
    "qwen3": (Qwen3Config, Qwen3Model),
    "gemma3": (Gemma3TextConfig, Gemma3TextModel),
    "gemma4": (Gemma4TextConfig, Gemma4TextModel),
}


@contextmanager
def all_float64() -> Iterator[None]:
    """Let every float32 that transformers asks for by name be a float64."""
    kept = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept[:3]
        torch.set_default_dtype(kept[3])


class Transformers:
    """One model in float64."""

    def __init__(self, source: str | PathLike[str] | GGUFFile) -> None:
        """Build the model from a file. Raises UnsupportedError for families and files that it cannot carry over."""
        file = source if isinstance(source, GGUFFile) else open_gguf(source)
        architecture = file.metadata.get("general.architecture")
        if architecture not in MODELS:
            raise UnsupportedError(f"{file.path}: {architecture!r} is not built here; families are {', '.join(MODELS)}")
        self._file = Translated(file)
        self.family = self._file.family
        self.keys = self._file.keys
        self.weights = self._file.weights
        self.taken: dict[Any, Any] = {}
        """What the hooks saw of the last evaluation."""
        with all_float64():
            self.model = self._built().double().eval()
        self._hook()

    def states(self, tokens: Sequence[int]) -> dict[str, Doubles]:
        """Give every key of the goldens at the last token: [(layers,) width]."""
        self.taken.clear()
        with all_float64(), torch.no_grad():
            normed = self.model(torch.tensor([list(tokens)]), use_cache=False).last_hidden_state[0, -1]
        layers = range(self.model.config.num_hidden_layers)
        result = {
            key: np.stack([self.taken[key, layer] for layer in layers])
            for key in ("l_out", "attn_contrib", "mlp_contrib")
        }
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        cap = self.keys.get("final_logit_softcapping", 30.0 if self.family == "gemma4" else 0.0)
        logits = head @ normed
        logits = cap * torch.tanh(logits / cap) if cap else logits
        return result | {"h0": self.taken["h0"], "result_norm": normed.numpy(), "logits": logits.numpy()}

    def greedy(self, tokens: Sequence[int], steps: int) -> tuple[list[int], list[float]]:
        """Continue with the highest logit: ids, and at each step its lead over the second."""
        ids, margins = list(tokens), []
        for _ in range(steps):
            logits = self.states(ids)["logits"]
            second, first = np.partition(logits, -2)[-2:]
            margins.append(float(first - second))
            ids.append(int(logits.argmax()))
        return ids[len(tokens) :], margins

    def _built(self) -> Any:
        config, model = MODELS[self.family]
        made = model(config(**self._file.arguments(), attn_implementation="eager"))
        if self.family == "gemma4":
            self._own_values(made)
        made.load_state_dict(dict(self._file.state(made)), strict=False)
        return made

    def _own_values(self, made: Any) -> None:
        """Give a full layer its own values where the file has them: transformers has it for all layers or none."""
        for index, layer in enumerate(made.layers):
            values = self.weights.get(f"blk.{index}.attn_v.weight")
            attention = layer.self_attn
            if values is not None and not attention.is_kv_shared_layer and attention.v_proj is None:
                attention.v_proj = torch.nn.Linear(values.shape[1], values.shape[0], bias=False)

    def _hook(self) -> None:
        layers = self.model.h if self.family == "gpt2" else self.model.layers
        layers[0].register_forward_pre_hook(self._take_first, with_kwargs=True)
        for index, layer in enumerate(layers):
            if self.family.startswith("gemma"):
                parts = layer.post_attention_layernorm, layer.post_feedforward_layernorm
            else:
                parts = (layer.attn if self.family == "gpt2" else layer.self_attn), layer.mlp
            for key, part in zip(("attn_contrib", "mlp_contrib", "l_out"), (*parts, layer), strict=True):
                part.register_forward_hook(self._taker((key, index)))

    def _take_first(self, module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        hidden = given[0] if given else named["hidden_states"]
        self.taken["h0"] = hidden[0, -1].numpy().copy()

    def _taker(self, key: tuple[str, int]) -> Any:
        def take(module: Any, given: Any, result: Any) -> None:
            values = result[0] if isinstance(result, tuple) else result
            self.taken[key] = values[0, -1].numpy().copy()

        return take
