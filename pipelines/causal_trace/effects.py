"""What the patches did: effects on the answer's log-probability, place by place and averaged over pairs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.causal_trace.pairs import CLEAN, CORRUPT, Pair, Place, stimulus_id
from pipelines.causal_trace.runs import control_id, patch_id

LEAST_GAP: Final = 1e-3
"""Nats between clean and corrupt prompt below which a share of it would be a share of rounding."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One patch."""

    pair: str
    group: str
    site: str
    layer: int
    place: Place
    clean: float
    """Log-probability (natural, summed over its tokens) of the clean answer after the clean prompt."""
    corrupt: float
    """The same after the corrupt prompt."""
    patched: float
    """The same after the corrupt prompt with this state put back."""

    @property
    def effect(self) -> float:
        """By how much the patch made the clean answer likelier, in nats."""
        return self.patched - self.corrupt

    @property
    def recovery(self) -> float:
        """The effect as a share of the whole difference; NaN where that is less than LEAST_GAP."""
        return _share(self.effect, self.clean - self.corrupt)


@dataclass(frozen=True, slots=True)
class Control:
    """The patch that puts everything back."""

    pair: str
    clean: float
    patched: float


@dataclass(frozen=True, slots=True)
class Column:
    """Places of several pairs that are averaged: the same part of the prompt and the same place in it."""

    role: str
    role_index: int
    token: str
    """The clean token, if it is the same in all pairs; else empty."""
    pairs: int
    """Pairs that have it."""
    changed: int
    """Pairs whose two prompts have other tokens here."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The mean over pairs at one layer and column."""

    pairs: int
    effect: float
    """Mean effect in nats."""
    recovery: float
    """Sum of effects over sum of differences between clean and corrupt; NaN if that is less than LEAST_GAP."""


@dataclass(frozen=True, slots=True)
class Panel:
    """The means of one group of pairs at one site."""

    group: str
    site: str
    pairs: int
    gap: float
    """Mean difference of log-probability between clean and corrupt prompt."""
    layers: tuple[int, ...]
    columns: tuple[Column, ...]
    """In the order of the prompt."""
    cells: tuple[tuple[Cell, ...], ...]
    """[layers][columns]."""


def find_effects(
    pairs: Sequence[Pair],
    sites: Sequence[str],
    layers: Sequence[int],
    baseline: Mapping[str, float],
    patched: Mapping[str, float],
) -> tuple[list[Effect], list[Control]]:
    """Put the log-probabilities of both runs (by stimulus id) together; patches that failed have none."""
    effects, controls = [], []
    for pair in pairs:
        clean, corrupt = (baseline[stimulus_id(pair.name, side)] for side in (CLEAN, CORRUPT))
        for site in sites:
            for layer in layers:
                for place in pair.patches:
                    found = patched.get(patch_id(pair.name, site, layer, place))
                    if found is not None:
                        told = (pair.name, pair.config.group, site, layer, place, clean, corrupt, found)
                        effects.append(Effect(*told))
        if (found := patched.get(control_id(pair.name))) is not None:
            controls.append(Control(pair.name, clean, found))
    return effects, controls


def average(effects: Sequence[Effect]) -> list[Panel]:
    """Average effects over the pairs of each group, at each site; groups and sites in the order of their first."""
    keys = dict.fromkeys((effect.group, effect.site) for effect in effects)
    return [_panel(*key, [e for e in effects if (e.group, e.site) == key]) for key in keys]


def _panel(group: str, site: str, effects: list[Effect]) -> Panel:
    gaps = {effect.pair: effect.clean - effect.corrupt for effect in effects}
    layers = tuple(sorted({effect.layer for effect in effects}))
    places: dict[tuple[str, int], dict[str, Place]] = {}
    cells: dict[tuple[int, tuple[str, int]], list[Effect]] = {}
    for effect in effects:
        key = (effect.place.role, effect.place.role_index)
        places.setdefault(key, {})[effect.pair] = effect.place
        cells.setdefault((effect.layer, key), []).append(effect)
    # All tokens at once stand behind the last one.
    where = {key: _mean(place.position for place in found.values()) for key, found in places.items()}
    order = sorted(places, key=lambda key: (where[key] < 0, where[key]))
    return Panel(
        group=group,
        site=site,
        pairs=len(gaps),
        gap=_mean(gaps.values()),
        layers=layers,
        columns=tuple(_column(key, list(places[key].values())) for key in order),
        cells=tuple(tuple(_cell(cells.get((layer, key), [])) for key in order) for layer in layers),
    )


def _column(key: tuple[str, int], places: list[Place]) -> Column:
    tokens = {place.clean_token for place in places}
    changed = sum(place.changed for place in places)
    return Column(*key, tokens.pop() if len(tokens) == 1 else "", len(places), changed)


def _cell(effects: list[Effect]) -> Cell:
    gap = math.fsum(effect.clean - effect.corrupt for effect in effects)
    total = math.fsum(effect.effect for effect in effects)
    return Cell(len(effects), _mean(effect.effect for effect in effects), _share(total, gap))


def _share(effect: float, gap: float) -> float:
    return effect / gap if abs(gap) >= LEAST_GAP else math.nan


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else math.nan
