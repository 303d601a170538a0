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

    def refuse_unless(self, name: str, neutral: Sequence[Any], why: str) -> None:
        """Raise UnsupportedError when a key that would change the numbers has any but a neutral value."""
        key = self._key(name)
        if key not in self.file.metadata:
            return
        found = self.file.metadata[key]
        if found not in neutral:
            raise UnsupportedError(f"{self.file.path}: {key} = {found!r}: {why}; runs only with {list(neutral)!r}")
        self.values[key] = found

    def unread(self) -> list[str]:
        """`{arch}.*` keys that nobody asked for, in file order."""
        prefix = self.architecture + "."
        return [key for key in self.file.metadata if key.startswith(prefix) and key not in self.values]
