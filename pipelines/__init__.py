"""The factory: from a configuration to stimuli, units on Dask workers, Parquet tables and a manifest.

    pipelines.run("configs/roots.yaml")
    X = pipelines.load("outputs/roots").matrix(site="after_layer", layer=7)     # [stimuli, hidden] float32

Importing this package imports nothing else; every name below is fetched when first used. What a notebook needs is here;
a name such as `lint` alone would be that of a module, so functions of one say what they act on: `lint_run`.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pipelines.comparison import Comparison as Comparison
    from pipelines.comparison import compare as compare
    from pipelines.config import RunConfig as RunConfig
    from pipelines.config import load_config as load_config
    from pipelines.export import export_run as export_run
    from pipelines.notebook import lint_run as lint_run
    from pipelines.notebook import plan_run as plan_run
    from pipelines.notebook import read_status as read_status
    from pipelines.notebook import report_run as report_run
    from pipelines.notebook import reproduce_run as reproduce_run
    from pipelines.notebook import verify_run as verify_run
    from pipelines.probes import probe as probe
    from pipelines.reading import Run as Run
    from pipelines.reading import load as load
    from pipelines.running import run as run

__ember__: Final = "0.1.0"
"""Marks this package as Ember's: others are called `pipelines` too, and `ember.commands` checks for it."""

_HOME: Final = {
    "Comparison": "pipelines.comparison",
    "Run": "pipelines.reading",
    "RunConfig": "pipelines.config",
    "compare": "pipelines.comparison",
    "export_run": "pipelines.export",
    "lint_run": "pipelines.notebook",
    "load": "pipelines.reading",
    "load_config": "pipelines.config",
    "plan_run": "pipelines.notebook",
    "probe": "pipelines.probes",
    "read_status": "pipelines.notebook",
    "report_run": "pipelines.notebook",
    "reproduce_run": "pipelines.notebook",
    "run": "pipelines.running",
    "verify_run": "pipelines.notebook",
}

__all__ = [
    "Comparison", "Run", "RunConfig", "compare", "export_run", "lint_run", "load", "load_config", "plan_run", "probe",
    "read_status", "report_run", "reproduce_run", "run", "verify_run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
