"""Reading the `{arch}.*` metadata of a file so that every key is accounted for.

A family asks for its keys one by one; what it never asked for is reported at the end. Absent optional keys take the
family's documented default and are recorded as defaulted: nothing is guessed silently.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ember.errors import ModelError, UnsupportedError
from ember.gguf import GGUFFile

LARGEST: Final = 2**31 - 1
"""No count of a real model reaches this; a larger one is a damaged header."""


NEUTRAL: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    # keys that would change the numbers of any family here, with the values under which they do not
    "expert_count": ((0,), "mixture-of-experts models are not supported"),
    "expert_used_count": ((0,), "mixture-of-experts models are not supported"),
    "attention.causal": ((True,), "bidirectional attention is not supported"),
    "attention.clamp_kqv": ((0, 0.0), "clamped q, k and v are not supported"),
    "attention.max_alibi_bias": ((0, 0.0), "ALiBi is not supported"),
    "attention.temperature_scale": ((0, 0.0, 1.0), "attention temperature is not supported"),
    "embedding_scale": ((1.0,), "a custom embedding scale is not supported"),
    "residual_scale": ((1.0,), "scaled residuals are not supported"),
    "logit_scale": ((1.0,), "scaled logits are not supported"),
    "use_parallel_residual": ((False,), "parallel residuals are not supported"),
}


class KeyReader:
    """Typed access to the `{arch}.*` keys of one file; remembers what was asked and what was defaulted."""

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture
        self.defaulted: dict[str, Any] = {}
        self.values: dict[str, Any] = {}

    def _key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def _fail(self, name: str, found: object, expected: str) -> ModelError:
        return ModelError(f"{self.file.path}: {self._key(name)}: found {found!r}, expected {expected}")

    def _fetch(self, name: str, default: Any) -> Any:
        key = self._key(name)
        if key in self.file.metadata:
            return self.file.metadata[key]
        if default is None:
            raise ModelError(f"{self.file.path}: {key}: absent, but a {self.architecture} model needs it")
        self.defaulted[key] = default
        return default

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """Return an integer key; an array of equal values counts as that value. Raises ModelError."""
        found = self._fetch(name, default)
        value = self._one_of_equal(name, found)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise self._fail(name, value, f"an integer from {least} to {LARGEST}")
        self.values[self._key(name)] = value
        return value

    def _one_of_equal(self, name: str, found: Any) -> Any:
        if not isinstance(found, np.ndarray):
            return found
        distinct = np.unique(found).tolist()
        if len(distinct) != 1:
            raise UnsupportedError(
                f"{self.file.path}: {self._key(name)}: differs by layer {found.tolist()[:8]}; "
                f"{self.architecture} runs with one value for all layers"
            )
        return distinct[0]

    def number(self, name: str, default: float | None = None) -> float:
        """Return a positive finite float key. Raises ModelError."""
        found = self._fetch(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not (math.isfinite(found) and found > 0):
            raise self._fail(name, found, "a positive finite number")
        self.values[self._key(name)] = float(found)
        return float(found)

    def per_layer(self, name: str, n_layers: int, *, least: int = 1) -> tuple[int, ...]:
        """Return an integer for each layer, from a scalar or an array of that length. Raises ModelError."""
        found = self._fetch(name, None)
        given = found.tolist() if isinstance(found, np.ndarray) else [found] * n_layers
        right = len(given) == n_layers and all(
            isinstance(v, int) and not isinstance(v, bool) and least <= v <= LARGEST for v in given
        )
        if not right:
            raise self._fail(name, _short(given), f"an integer from {least} up, or one for each of {n_layers} layers")
        self.values[self._key(name)] = given if isinstance(found, np.ndarray) else found
        return tuple(given)

    def pattern(self, name: str, n_layers: int, *, default: int | None = None) -> tuple[bool, ...]:
        """Return which layers slide: an array of booleans, or n for "every n-th layer does not". Raises ModelError."""
        found = self._fetch(name, default)
        if isinstance(found, np.ndarray) and found.dtype == np.bool_ and len(found) == n_layers:
            self.values[self._key(name)] = found.tolist()
            return tuple(found.tolist())
        if isinstance(found, int) and not isinstance(found, bool) and 1 <= found <= LARGEST:
            self.values[self._key(name)] = found
            return tuple(layer % found != found - 1 for layer in range(n_layers))
        shown = _short(found.tolist()) if isinstance(found, np.ndarray) else found
        raise self._fail(name, shown, f"a positive integer or {n_layers} booleans")

    def refuse_common(self) -> None:
        """Refuse what no family here runs."""
        for name, (neutral, why) in NEUTRAL.items():
            self.refuse_unless(name, neutral, why)

    def refuse_unless(self, name: str, neutral: Sequence[Any], why: str) -> None:
        """Raise UnsupportedError when a key that would change the numbers has any but a neutral value."""
        key = self._key(name)
        if key not in self.file.metadata:
            return
        found = self.file.metadata[key]
        if isinstance(found, np.ndarray) or found not in neutral:
            raise UnsupportedError(f"{self.file.path}: {key} = {found!r}: {why}; runs only with {list(neutral)!r}")
        self.values[key] = found

    def vocab_size(self) -> int:
        """Return `vocab_size`; where the key is absent, the rows of the embedding."""
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None:
            raise ModelError(f"{self.file.path}: token_embd.weight: absent, but a {self.architecture} model needs it")
        return self.integer("vocab_size", embedding.shape[0])

    def kv_heads(self, heads: int) -> int:
        """Return the number of key/value heads, by default all `heads`; they must divide."""
        found = self.integer("attention.head_count_kv", heads)
        if heads % found:
            raise self._fail("attention.head_count_kv", found, f"a divisor of the {heads} heads")
        return found

    def present(self, name: str) -> bool:
        """Whether the file has this key."""
        return self._key(name) in self.file.metadata

    def unread(self) -> list[str]:
        """`{arch}.*` keys that nobody asked for, in file order."""
        prefix = self.architecture + "."
        return [key for key in self.file.metadata if key.startswith(prefix) and key not in self.values]


def _short(values: list[Any]) -> Any:
    return values[0] if len(set(map(repr, values))) == 1 else [*values[:8], "…"] if len(values) > 8 else values
