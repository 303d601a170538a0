"""The tensor contract: for every site and layer that was captured, what its tensor is and where it comes from."""

from collections.abc import Sequence
from typing import Any

from ember.card import BoundModel, SiteOrigin
from ember.gguf import GGUFFile
from ember.sites import SITES
from ember.work import CaptureWork


def tensor_contract(
    model: BoundModel, file: GGUFFile, captures: Sequence[CaptureWork], kernels: dict[str, str], *, decodes: bool
) -> dict[str, Any]:
    """Describe captured sites: side of the residual, the norm that fed it, source tensors, kernels per phase."""
    wanted: dict[str, set[int]] = {}
    for work in captures:
        wanted.setdefault(work.site, set()).update(work.layers)
    origins = {
        site: {layer: _origin(model, site, layer) for layer in sorted(layers)} for site, layers in wanted.items()
    }
    used = {name for by_layer in origins.values() for one in by_layer.values() for name in _names(one)}
    phases = ("prefill", "decode") if decodes else ("prefill",)
    return {
        "sites": {
            site: {str(layer): _plain(one) for layer, one in by_layer.items()} for site, by_layer in origins.items()
        },
        "tensors": {name: _tensor(file, name) for name in sorted(used)},
        "phases": {p: {k: v for k, v in kernels.items() if k.startswith(p) or "_" not in k} for p in phases},
        "embedding": "token_embd.weight",
        "tied_head": model.card.tied_head,
    }


def _origin(model: BoundModel, site: str, layer: int) -> SiteOrigin:
    if SITES[site].per_layer:
        found: SiteOrigin = model.family.origins(model.config, model.weights, layer)[site]
    else:
        found = model.family.head_origins(model.weights)[site]
    return found


def _names(origin: SiteOrigin) -> list[str]:
    return [*origin.tensors, *([origin.norm] if origin.norm else [])]


def _plain(origin: SiteOrigin) -> dict[str, Any]:
    return {"side": origin.side, "norm": origin.norm, "tensors": list(origin.tensors)}


def _tensor(file: GGUFFile, name: str) -> dict[str, Any]:
    info = file.tensors[name]
    return {"type": info.type.name, "shape": list(info.shape), "part": info.part}
