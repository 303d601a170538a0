"""What has been shown so far, as data: one entry per comparison that passed (`rungs.json`, written by `page`)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ember.validation.ladder import NONE, height

DATA: Final = Path(__file__).with_name("rungs.json")
PLAIN: Final = "F32"
"""The type that needs no decoding; every file has it in its vectors, so it decides only where it stands alone."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What has been shown for a model like this one."""

    rung: str
    """Of the tensor type for which least has been shown; `none` if nothing has."""
    by_type: Mapping[str, str]
    """Rung of each tensor type of the model in this family and route."""
    models: tuple[str, ...]
    """Names of the models on which this was shown."""

    def record(self) -> dict[str, Any]:
        """Return plain data for a manifest."""
        return {"rung": self.rung, "by_type": dict(self.by_type), "models": list(self.models)}


@cache
def entries() -> tuple[dict[str, Any], ...]:
    """Return every comparison that passed."""
    return tuple(json.loads(DATA.read_text(encoding="utf-8")))


def rung_of(architecture: str, quant_types: Iterable[str], route: str) -> Shown:
    """Say what has been shown for a family, a set of tensor types and a route (`reference` or `fast`).

    A comparison of a file speaks for every type that the file holds; a model is as well shown as its least shown type.
    """
    alike = [entry for entry in entries() if (entry["architecture"], entry["route"]) == (architecture, route)]
    types = sorted(set(quant_types))
    deciding = [kind for kind in types if kind != PLAIN] or types
    by_type = {kind: _highest(entry["rung"] for entry in alike if _speaks_for(entry, kind)) for kind in deciding}
    models = {entry["model"]["name"] for entry in alike if any(_speaks_for(entry, kind) for kind in deciding)}
    rung = min(by_type.values(), key=height, default=NONE)
    return Shown(rung, by_type, tuple(sorted(models)))


def _speaks_for(entry: Mapping[str, Any], kind: str) -> bool:
    """A file speaks for the types it holds, and for F32 only if all of it is F32."""
    types = entry["quant_types"]
    return kind in types and (kind != PLAIN or types == [PLAIN])


def _highest(rungs: Iterable[str]) -> str:
    return max(rungs, key=height, default=NONE)
