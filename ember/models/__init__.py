"""Families by the file's `general.architecture`: a literal table, imported by name, each entry tested to import.

There is no default architecture: what is not in the table is refused by name.
"""

import importlib
from typing import Any, Final

from ember.card import BoundModel, ModelCard, quant_counts
from ember.errors import ModelError, UnsupportedError
from ember.gguf import GGUFFile
from ember.models.keys import KeyReader
from ember.models.tensors import TensorBinder

FAMILIES: Final[dict[str, str]] = {
    name: f"ember.models.{name}" for name in ("gpt2", "llama", "qwen2", "qwen3", "gemma3", "gemma4")
}


def read_model(file: GGUFFile) -> ModelCard:
    """Describe the model in `file`. Raises UnsupportedError and ModelError with the key or tensor at fault."""
    return bind_model(file).card


def bind_model(file: GGUFFile) -> BoundModel:
    """Read the configuration, bind every tensor, account for what is left."""
    architecture = _architecture(file)
    family = importlib.import_module(FAMILIES[architecture])
    file.check_supported()
    keys = KeyReader(file, architecture)
    config = family.read_config(file, keys)
    binder = TensorBinder(file, architecture)
    weights = family.bind_weights(config, binder)
    binder.finish()
    return BoundModel(family, config, weights, _card(file, architecture, keys, config, binder, weights))


def _architecture(file: GGUFFile) -> str:
    found = file.metadata.get("general.architecture")
    if not isinstance(found, str):
        raise ModelError(f"{file.path}: general.architecture: found {found!r}, expected the name of an architecture")
    if found not in FAMILIES:
        raise UnsupportedError(
            f"{file.path}: general.architecture = {found!r} is not supported; supported are {', '.join(FAMILIES)}"
        )
    return found


def _card(
    file: GGUFFile, architecture: str, keys: KeyReader, config: Any, binder: TensorBinder, weights: Any
) -> ModelCard:
    name = file.metadata.get("general.name")
    return ModelCard(
        architecture=architecture,
        name=name if isinstance(name, str) else None,
        n_layers=config.n_layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        context_length=config.context_length,
        hyperparameters=keys.values,
        defaulted=keys.defaulted,
        unread_keys=tuple(keys.unread()),
        unused_tensors=tuple(sorted(binder.ignored)),
        tied_head=weights.tied,
        quant_types=quant_counts(file),
    )
