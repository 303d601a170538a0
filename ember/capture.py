"""What `Model.capture` takes and gives: requests checked against the model, rows gathered in the caller's order."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from ember.hooks import Experiment
from ember.positions import KINDS, Position, resolve
from ember.sites import NO_LAYER, SITES
from ember.work import CaptureWork, Floats, InterventionWork, Observe, Operation, Tokens

OPERATIONS: Final = get_args(Operation)
ROW_DTYPE: Final = np.dtype([("prompt", np.int64), ("position", np.int32), ("token_id", np.int32)])

Finding = tuple[int, str, Any]


@dataclass(frozen=True, slots=True)
class Captures:
    """Hidden states by site, with their origin."""

    arrays: Mapping[str, Floats]
    rows: NDArray[Any]
    """One record per row of the arrays: prompt, position and token_id (-1 both for a mean)."""
    layers: Mapping[str, tuple[int, ...]]
    """The layers of each site's second axis; (-1,) for the logits sites."""
    provenance: dict[str, Any]
    """Where the arrays come from: file, sha256, architecture, tokenizer, positions, tensor contract, numerics; where
    experiments or interventions acted, which, and the side of them that is captured."""
    findings: list[Finding] = field(default_factory=list)
    """Prompt, experiment's name and what its `results()` returned, for experiments that have some."""

    def __getitem__(self, site: str) -> Floats:
        """Array of a site: [rows, layers, hidden]; [rows, hidden] or [rows, vocab] for the logits sites."""
        if site not in self.arrays:
            raise InputError(f"site {site!r} was not captured; captured: {', '.join(self.arrays)}")
        return self.arrays[site]


def check_sites(site: str | Sequence[str]) -> list[str]:
    """Return the sites asked for. Raises InputError for unknown or repeated ones."""
    sites = [site] if isinstance(site, str) else list(site)
    for name in sites:
        if name not in SITES:
            near = difflib.get_close_matches(str(name), SITES, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"site {name!r} does not exist; sites are {', '.join(SITES)}{hint}")
    if not sites or len(set(sites)) != len(sites):
        raise InputError(f"sites {sites!r}: expected one or more different sites")
    return sites


def check_layers(layers: str | Sequence[int], n_layers: int, sites: Sequence[str]) -> tuple[int, ...]:
    """Return layers from 0, negative ones counted from the end. Raises InputError for others and for repeated ones."""
    if not isinstance(layers, str) and not any(SITES[site].per_layer for site in sites):
        raise InputError(f"layers {layers!r}: {', '.join(sites)} belongs to no layer; leave layers out")
    if isinstance(layers, str):
        if layers != "all":
            raise InputError(f"layers {layers!r}: expected 'all' or a list of layers")
        return tuple(range(n_layers))
    chosen = []
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int | np.integer) or not -n_layers <= layer < n_layers:
            raise InputError(f"layer {layer!r} does not exist; the model has layers 0 to {n_layers - 1}")
        chosen.append(int(layer) % n_layers)
    if not chosen or len(set(chosen)) != len(chosen):
        raise InputError(f"layers {list(layers)!r}: expected one or more different layers")
    return tuple(chosen)


def check_position(position: str | int | Position) -> Position:
    """Return a selector: a name, an index (negative from the end) or a Position. Raises InputError."""
    if isinstance(position, Position):
        return position
    if isinstance(position, str) and position in ("last", "all", "mean"):
        return Position(position)  # type: ignore[arg-type]
    if isinstance(position, int) and not isinstance(position, bool):
        return Position("index", position) if position >= 0 else Position("from_end", -1 - position)
    raise InputError(
        f"position {position!r}: expected 'last', 'all', 'mean', an index, "
        f"or an ember.positions.Position ({', '.join(KINDS)})"
    )


def capture_works(
    sites: list[str],
    layers: tuple[int, ...],
    position: Position,
    prompts: Sequence[Tokens],
    observe: Observe = "after",
) -> tuple[CaptureWork, ...]:
    """Return the engine's form of a request for all prompts. Raises InputError where a prompt has no such position."""
    positions = []
    for index, prompt in enumerate(prompts):
        try:
            positions.append(resolve(position, len(prompt)))
        except InputError as error:
            raise InputError(f"prompt {index}: {error}") from None
    ascending = tuple(sorted(layers))
    return tuple(
        CaptureWork(
            site, ascending if SITES[site].per_layer else (NO_LAYER,), tuple(positions), position.pooled, observe
        )
        for site in sites
    )


def check_observe(observe: str | None, *, changed: bool) -> Observe:
    """Return the side of what acts that is captured. Raises InputError where it must be said and is not."""
    if observe not in ("before", "after", None):
        raise InputError(f"observe {observe!r}: expected 'before' or 'after'")
    if observe is None and changed:
        raise InputError(
            "captures next to an intervention or an experiment that changes values are ambiguous: "
            "give observe='before' or observe='after' (of what acts at the captured site)"
        )
    return "after" if observe in (None, "after") else "before"


def check_interventions(
    interventions: Sequence[InterventionWork], n_prompts: int, n_layers: int
) -> tuple[InterventionWork, ...]:
    """Return the interventions. Raises InputError where sites, layers, prompts or sources do not fit."""
    for number, one in enumerate(interventions):
        where = f"intervention {number} ({one.operation} at {one.site}): "
        if one.operation not in OPERATIONS:
            raise InputError(where + f"expected one of {', '.join(OPERATIONS)}")
        check_sites(one.site)
        wanted = range(n_layers) if SITES[one.site].per_layer else (NO_LAYER,)
        if not one.layers or any(layer not in wanted for layer in one.layers):
            raise InputError(where + f"layers {list(one.layers)} do not exist; expected some of {wanted}")
        if len(one.positions) != n_prompts:
            raise InputError(where + f"positions of {len(one.positions)} prompts, expected those of {n_prompts}")
        sources = sum(source is not None for source in (one.vector, one.rows, one.capture))
        if sources != (0 if one.operation in ("zero", "scale") else 1):
            raise InputError(where + f"found {sources} sources, expected one for all operations but zero and scale")
    return tuple(interventions)


def acting_record(
    interventions: Sequence[InterventionWork], experiments: Sequence[Sequence[Experiment]], observe: Observe
) -> dict[str, Any]:
    """Name what acted on the captured rows, as plain data."""
    hooked = {one.name: one.mutates for mine in experiments for one in mine}
    return {
        "observe": observe,
        "interventions": [
            {"operation": one.operation, "site": one.site, "layers": list(one.layers), "strength": one.strength}
            for one in interventions
        ],
        "experiments": [{"name": name, "mutates": mutates} for name, mutates in hooked.items()],
    }


def row_records(work: CaptureWork, prompts: Sequence[Tokens]) -> NDArray[Any]:
    """Name every row that `work` yields."""
    if work.pooled:
        return np.array([(prompt, -1, -1) for prompt in range(len(prompts))], ROW_DTYPE)
    named = [(p, at, int(prompts[p][at])) for p, at_all in enumerate(work.positions) for at in at_all]
    return np.array(named, ROW_DTYPE)


def select(work: CaptureWork, chosen: Sequence[int]) -> CaptureWork:
    """Return the same capture for some of the prompts, in the order of `chosen`."""
    return replace(work, positions=tuple(work.positions[i] for i in chosen))


def select_acting(work: InterventionWork, chosen: Sequence[int]) -> InterventionWork:
    """Return the same intervention for some of the prompts, in the order of `chosen`."""
    rows = work.rows
    if rows is not None:
        starts = np.concatenate([[0], np.cumsum([len(at) for at in work.positions])])
        rows = rows[:, np.concatenate([np.arange(starts[i], starts[i + 1]) for i in chosen])]
    steps = tuple(work.steps[i] for i in chosen) if work.steps else ()
    return replace(work, positions=tuple(work.positions[i] for i in chosen), steps=steps, rows=rows)
