"""`activation_stats`: norms, extremes and fingerprints of every tensor that hooks see. It looks and changes nothing."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.hooks.access import TensorAccess
from ember.hooks.contexts import ExecutionContext, GenerationContext, LayerContext
from ember.hooks.experiment import Experiment
from ember.sites import NO_LAYER
from ember.work import Floats

FINGERPRINT_DIGITS = 16


class ActivationStats(Experiment):
    """Records one line for each site, layer and evaluation.

    `results()` is `{"records": [...], "prompt_tokens": n, "generated_tokens": m}`; a record holds `phase`,
    `start_position` (of the evaluation's first token), `site`, `layer` (-1 for the logits sites), `rows`, `columns`,
    and what `describe` says.
    """

    name = "activation_stats"
    mutates = False

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []
        self._counts: dict[str, int] = {}

    def before_layer(self, ctx: LayerContext, hidden: TensorAccess) -> None:
        """See `Experiment.before_layer`."""
        self._note("before_layer", ctx.execution, ctx.layer, hidden)

    def after_attention(self, ctx: LayerContext, contribution: TensorAccess) -> None:
        """See `Experiment.after_attention`."""
        self._note("after_attention", ctx.execution, ctx.layer, contribution)

    def after_mlp(self, ctx: LayerContext, contribution: TensorAccess) -> None:
        """See `Experiment.after_mlp`."""
        self._note("after_mlp", ctx.execution, ctx.layer, contribution)

    def after_layer(self, ctx: LayerContext, hidden: TensorAccess) -> None:
        """See `Experiment.after_layer`."""
        self._note("after_layer", ctx.execution, ctx.layer, hidden)

    def before_logits(self, ctx: ExecutionContext, hidden: TensorAccess) -> None:
        """See `Experiment.before_logits`."""
        self._note("before_logits", ctx, NO_LAYER, hidden)

    def after_logits(self, ctx: ExecutionContext, logits: TensorAccess) -> None:
        """See `Experiment.after_logits`."""
        self._note("after_logits", ctx, NO_LAYER, logits)

    def on_generation_complete(self, ctx: GenerationContext) -> None:
        """See `Experiment.on_generation_complete`."""
        self._counts = {"prompt_tokens": ctx.prompt_token_count, "generated_tokens": ctx.generated_token_count}

    def results(self) -> dict[str, Any]:
        """See the class; the counts are there once the prompt is done."""
        return {"records": list(self._records), **self._counts}

    def _note(self, site: str, ctx: ExecutionContext, layer: int, tensor: TensorAccess) -> None:
        rows, columns = tensor.shape
        where = {"phase": str(ctx.phase), "start_position": ctx.start_position, "site": site, "layer": layer}
        # the logits sites show the evaluation's last token only
        first = ctx.sequence_length - rows
        self._records.append({**where, "rows": rows, "columns": columns, **describe(tensor.values(), first)})


def describe(values: Floats, first_position: int = 0) -> dict[str, Any]:
    """Describe a tensor [rows, columns] whose first row stands at `first_position`, as plain data for JSON.

    `norm` (L2), `mean`, `min` and `max` are float64 and taken over the finite values (None without any), `min` and
    `max` with the position and column where they first occur; `nonfinite` counts the others; `fingerprint` is the first
    16 hexadecimal digits of the SHA-256 of the float32 bytes, so equal ones mean equal bits.
    """
    flat = values.reshape(-1)
    places = np.flatnonzero(np.isfinite(flat))
    finite = flat[places].astype(np.float64)
    return {
        "norm": float(np.sqrt(np.dot(finite, finite))) if len(finite) else None,
        "mean": float(finite.mean()) if len(finite) else None,
        "min": _extreme(finite, places, values.shape[1], first_position, np.argmin),
        "max": _extreme(finite, places, values.shape[1], first_position, np.argmax),
        "nonfinite": len(flat) - len(finite),
        "fingerprint": fingerprint(values),
    }


def fingerprint(values: Floats) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the values' little-endian float32 bytes, row after row."""
    return hashlib.sha256(np.ascontiguousarray(values, "<f4").tobytes()).hexdigest()[:FINGERPRINT_DIGITS]


def _extreme(
    finite: NDArray[np.float64], places: NDArray[np.int64], columns: int, first: int, choose: Callable[..., Any]
) -> dict[str, Any] | None:
    if not len(finite):
        return None
    at = int(choose(finite))
    row, column = divmod(int(places[at]), columns)
    return {"value": float(finite[at]), "position": first + row, "column": column}
