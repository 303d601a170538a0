"""What a file is, before any of it runs: the record that `inspect`, the plan and the manifest quote."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ember.gguf import GGUFFile


@dataclass(frozen=True, slots=True)
class SiteOrigin:
    """Where a site's tensor comes from: one row of the tensor contract."""

    side: str
    """Which side of which residual addition."""
    norm: str | None
    """The tensor of the norm that fed the block; None where none did."""
    tensors: tuple[str, ...]
    """Tensors of the file that enter between the residual stream and this site."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model as its header describes it, every key and tensor accounted for."""

    architecture: str
    name: str | None
    n_layers: int
    hidden_size: int
    vocab_size: int
    context_length: int
    hyperparameters: Mapping[str, Any]
    """`{arch}.*` keys with the values in use."""
    defaulted: Mapping[str, Any]
    """Keys the file lacks, with the family's documented default."""
    unread_keys: tuple[str, ...]
    """`{arch}.*` keys that change nothing here; reported, not used."""
    unused_tensors: tuple[str, ...]
    """Tensors that the family knows to be without effect."""
    tied_head: bool
    quant_types: Mapping[str, int]
    """Tensors per quantisation type."""

    def notes(self) -> list[str]:
        """Say what about the file deserves a look before its numbers are believed."""
        return [f"key {key} is not one of the {self.architecture} family's; nobody read it" for key in self.unread_keys]

    def record(self) -> dict[str, Any]:
        """Return the card as plain data for a manifest."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class BoundModel:
    """A family with its hyper-parameters and tensors."""

    family: ModuleType
    """Module with embed, layer, final_norm, logits, origins, head_origins (see docs/how-to/add-a-family.md)."""
    config: Any
    weights: Any
    card: ModelCard


def quant_counts(file: GGUFFile) -> dict[str, int]:
    """Count tensors per type, most frequent first."""
    return dict(Counter(tensor.type.name for tensor in file.tensors.values()).most_common())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
