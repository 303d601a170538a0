"""What `Model.capture` takes and gives: requests checked against the model, rows gathered in the caller's order."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from ember.card import ModelCard
from ember.errors import InputError
from ember.hooks import Experiment
from ember.positions import KINDS, Position, resolve
from ember.sites import NO_LAYER, SITES, moment
from ember.work import ALL_STEPS, CaptureWork, Floats, InterventionWork, Observe, Operation, Tokens

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
    interventions: Sequence[InterventionWork],
    prompts: Sequence[Tokens],
    card: ModelCard,
    captures: Sequence[CaptureWork] = (),
) -> tuple[InterventionWork, ...]:
    """Return the interventions. Raises InputError where sites, layers, positions, strengths or sources do not fit."""
    for number, one in enumerate(interventions):
        if not isinstance(one, InterventionWork):
            raise InputError(f"intervention {number}: found {type(one).__name__}, expected an InterventionWork")
        where = f"intervention {number} ({one.operation} at {one.site}): "
        if one.operation not in OPERATIONS:
            raise InputError(where + f"expected one of {', '.join(OPERATIONS)}")
        check_sites(one.site)
        wanted = range(card.n_layers) if SITES[one.site].per_layer else (NO_LAYER,)
        if not one.layers or any(layer not in wanted for layer in one.layers):
            raise InputError(where + f"layers {list(one.layers)} do not exist; expected some of {wanted}")
        if list(one.layers) != sorted(set(one.layers)):
            raise InputError(where + f"layers {list(one.layers)}: expected each once, in ascending order")
        if not math.isfinite(one.strength):
            raise InputError(where + f"strength {one.strength}: expected a finite number")
        _check_places(one, prompts, where)
        _check_source(one, card, where)
        if one.capture is not None:
            _check_capture(one, captures, where)
    return tuple(interventions)


def _check_places(one: InterventionWork, prompts: Sequence[Tokens], where: str) -> None:
    if len(one.positions) != len(prompts):
        raise InputError(where + f"positions of {len(one.positions)} prompts, expected those of {len(prompts)}")
    for number, (at, prompt) in enumerate(zip(one.positions, prompts, strict=True)):
        if any(not 0 <= index < len(prompt) for index in at):
            raise InputError(
                where + f"positions {list(at)} of prompt {number}, expected token indices from 0 to {len(prompt) - 1}"
            )
    if one.steps and len(one.steps) != len(prompts):
        raise InputError(where + f"steps of {len(one.steps)} prompts, expected those of {len(prompts)}, or none")
    if any(step < ALL_STEPS for at in one.steps for step in at):
        raise InputError(where + f"steps {one.steps}: expected numbers from 0, or {ALL_STEPS} for all of them")


def _check_source(one: InterventionWork, card: ModelCard, where: str) -> None:
    sources = sum(source is not None for source in (one.vector, one.rows, one.capture))
    if sources != (0 if one.operation in ("zero", "scale") else 1):
        raise InputError(where + f"found {sources} sources, expected one for all operations but zero and scale")
    width = card.vocab_size if SITES[one.site].width == "vocab" else card.hidden_size
    each = (len(one.layers), width)
    if one.vector is not None and one.vector.shape not in ((width,), each):
        raise InputError(where + f"a vector of shape {one.vector.shape}, expected {(width,)} or {each}")
    rows = (len(one.layers), sum(map(len, one.positions)), width)
    if one.rows is not None and one.rows.shape != rows:
        raise InputError(where + f"rows of shape {one.rows.shape}, expected {rows}: layers, positions, width")


def _check_capture(one: InterventionWork, captures: Sequence[CaptureWork], where: str) -> None:
    assert one.capture is not None
    if not 0 <= one.capture < len(captures):
        raise InputError(where + f"capture {one.capture} does not exist: there are {len(captures)}, counted from 0")
    source = captures[one.capture]
    if SITES[source.site].width != SITES[one.site].width:
        raise InputError(where + f"rows of {source.site}, capture {one.capture}, are not as wide as those acted on")
    for layer in one.layers:
        read = layer if one.capture_layer is None else one.capture_layer
        if read not in source.layers:
            raise InputError(where + f"capture {one.capture} has no layer {read}, only {list(source.layers)}")
        taken, acted = moment(source.site, read), moment(one.site, layer)
        if taken > acted or (taken == acted and source.observe == "after"):
            raise InputError(
                where + f"capture {one.capture} of {source.site}, layer {read}, is not taken before layer {layer} is "
                "acted on; expected one of an earlier layer or site, or of the same with observe='before'"
            )
    for number, (at, kept) in enumerate(zip(one.positions, source.positions, strict=True)):
        rows = min(1, len(kept)) if source.pooled else len(kept)
        if at and rows not in (1, len(at)):
            raise InputError(
                where
                + f"capture {one.capture} has {rows} rows of prompt {number}, expected one, or the {len(at)} acted on"
            )


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
