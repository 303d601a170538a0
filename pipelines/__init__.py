"""The factory: from a configuration to stimuli, units on Dask workers, Parquet tables and a manifest.

    pipelines.run("configs/roots.yaml")
    X = pipelines.load("outputs/roots").matrix(site="after_layer", layer=7)     # [stimuli, hidden] float32

Importing this package imports nothing else; every name below is fetched when first used.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pipelines.comparison import Comparison as Comparison
    from pipelines.comparison import compare as compare
    from pipelines.reading import Run as Run
    from pipelines.reading import load as load
    from pipelines.running import run as run

__ember__: Final = "0.1.0"
"""Marks this package as Ember's: others are called `pipelines` too, and `ember.commands` checks for it."""

__all__ = ["Comparison", "Run", "compare", "load", "run"]

_HOME: Final = {
    "Comparison": "pipelines.comparison:Comparison",
    "Run": "pipelines.reading:Run",
    "compare": "pipelines.comparison:compare",
    "load": "pipelines.reading:load",
    "run": "pipelines.running:run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}; it offers {', '.join(__all__)}")
    module, attribute = _HOME[name].split(":")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
