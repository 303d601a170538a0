"""The geometry of a finished run in two tables.

    <run>/geometry/geometry.parquet   measure, capture, site, layer, other, other_layer, value, baseline, p, stimuli
                   maps.parquet       capture, site, layer, sample_index, x, y, explained_x, explained_y
                   manifest.json      written last

cka           of layers of one capture: `other_layer`
rsa           of layers (`other_layer`), and of a layer with the model of a label (`other`); `baseline` is the 95 %
              point of the same with shuffled stimuli
svcca         mean canonical correlation of neighbouring layers, where stimuli are enough for it
divergence    of stimuli answered correctly and not; `baseline` is its mean with shuffled answers, `p` their share
tokens_per_…  word, byte and character; `other` is a template or a script
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from pipelines import tables
from pipelines.geometry.fertility import Fertility, word_fertility
from pipelines.geometry.maps import Map, divergence, pca_map
from pipelines.geometry.similarity import (
    Doubles,
    Floats,
    centred_gram,
    cka_of_grams,
    correlation,
    distances,
    label_distances,
    ranks,
    svcca,
)
from pipelines.manifest import CaptureRecord
from pipelines.reading import Run
from pipelines.rows import LABEL_PREFIX

MOST: Final = 1000
"""Stimuli that are compared pair by pair; of more, so many are drawn."""
SHUFFLES: Final = 99
ENOUGH: Final = 5
"""Stimuli for each canonical direction, at least."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of geometry.parquet."""

    measure: str
    capture: str = ""
    site: str = ""
    layer: int = -1
    other: str = ""
    other_layer: int = -1
    value: float = math.nan
    baseline: float = math.nan
    p: float = math.nan
    stimuli: int = 0


@dataclass(frozen=True, slots=True)
class LayerMap:
    """A map of one layer."""

    capture: str
    site: str
    layer: int
    samples: NDArray[np.int64]
    map: Map


def capture_geometry(run: Run, capture: CaptureRecord, seed: int) -> tuple[list[Measure], list[LayerMap]]:
    """Measure one capture that has a row for each stimulus."""
    rows = run.rows(site=capture.site, layer=capture.layers[0], capture=capture.name)
    samples = tables.column(rows, "sample_index").astype(np.int64)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(samples))[:MOST])
    codes = _label_codes(run, samples[chosen])
    correct = _correct(run, samples)
    compared: list[_Layer] = []
    measures: list[Measure] = []
    maps: list[LayerMap] = []
    for layer in capture.layers:
        x = run.matrix(site=capture.site, layer=layer, capture=capture.name)
        maps.append(LayerMap(capture.name, capture.site, layer, samples, pca_map(x, min(2, *x.shape))))
        compared.append(_Layer(layer, x[chosen], centred_gram(x[chosen]), ranks(distances(x[chosen]))))
        measures += _divergence(capture, layer, x, correct, seed)
    measures += _between(capture, compared)
    for label, values in codes.items():
        measures += _models(capture, compared, label, values, seed)
    return measures, maps


@dataclass(frozen=True, slots=True)
class _Layer:
    number: int
    x: Floats
    gram: Doubles
    ranks: Doubles


def _label_codes(run: Run, samples: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Codes of labels that all chosen stimuli have, with at least two values and fewer than stimuli."""
    table = run.stimuli
    place = {sample: row for row, sample in enumerate(table["sample_index"].to_pylist())}
    rows = [place[sample] for sample in samples.tolist()]
    found = {}
    for name in (name for name in table.column_names if name.startswith(LABEL_PREFIX)):
        listed = table[name].to_pylist()
        values = [listed[row] for row in rows]
        kinds = {value: i for i, value in enumerate(dict.fromkeys(values))}
        if None not in kinds and 2 <= len(kinds) < len(values):
            found[name.removeprefix(LABEL_PREFIX)] = np.array([kinds[value] for value in values], np.int64)
    return found


def _correct(run: Run, samples: NDArray[np.int64]) -> dict[int, bool]:
    """Whether each stimulus with an expected text was answered correctly, by its row."""
    table = run.generations
    columns = (table[name].to_pylist() for name in ("sample_index", "has_expected", "stopped", "correct"))
    told = {sample: right for sample, has, stopped, right in zip(*columns, strict=True) if has and stopped}
    return {row: told[sample] for row, sample in enumerate(samples.tolist()) if sample in told}


def _divergence(
    capture: CaptureRecord, layer: int, x: Floats, correct: dict[int, bool], seed: int
) -> Iterator[Measure]:
    rows, kind = list(correct), np.array(list(correct.values()), np.bool_)
    if min(int(kind.sum()), int((~kind).sum())) < 2 or len(kind) < 4:
        return
    found = divergence(x[rows], kind, np.random.default_rng(seed), SHUFFLES)
    yield Measure(
        "divergence", capture.name, capture.site, layer, "correct",
        value=found.distance, baseline=found.expected, p=found.p, stimuli=len(kind),
    )  # fmt: skip


def _between(capture: CaptureRecord, layers: Sequence[_Layer]) -> Iterator[Measure]:
    for i, one in enumerate(layers):
        for other in layers[i:]:
            for measure, value in (
                ("cka", cka_of_grams(one.gram, other.gram)),
                ("rsa", correlation(one.ranks, other.ranks)),
            ):
                yield Measure(
                    measure, capture.name, capture.site, one.number, "layer", other.number, value, stimuli=len(one.x)
                )
    for one, other in pairwise(layers):
        try:
            found = svcca(one.x, other.x)
        except InputError:
            continue
        if ENOUGH * len(found) <= len(one.x):
            value = float(found.mean())
            yield Measure(
                "svcca", capture.name, capture.site, one.number, "layer", other.number, value, stimuli=len(one.x)
            )


def _models(
    capture: CaptureRecord, layers: Sequence[_Layer], label: str, codes: NDArray[np.int64], seed: int
) -> Iterator[Measure]:
    random = np.random.default_rng(seed)
    model = ranks(label_distances(codes))
    shuffled = [ranks(label_distances(random.permutation(codes))) for _ in range(SHUFFLES)]
    for one in layers:
        value = correlation(one.ranks, model)
        by_chance = np.array([correlation(one.ranks, other) for other in shuffled])
        p = (1 + int((by_chance >= value).sum())) / (1 + SHUFFLES)
        yield Measure(
            "rsa", capture.name, capture.site, one.number, label,
            value=value, baseline=float(np.quantile(by_chance, 0.95)), p=p, stimuli=len(codes),
        )  # fmt: skip


def run_fertility(run: Run) -> list[Measure]:
    """Tokens per word, byte and character of prompts, by template and by script."""
    table = run.stimuli
    columns = (table[name].to_pylist() for name in ("template", "prompt", "byte_start", "byte_end"))
    sums: dict[str, Fertility] = {}
    stimuli: dict[str, int] = {}
    for template, prompt, starts, ends in zip(*columns, strict=True):
        words = list(word_fertility(prompt, starts, ends))
        for key in dict.fromkeys([f"template {template}", *(f"script {script}" for script, _ in words)]):
            stimuli[key] = stimuli.get(key, 0) + 1
        for script, found in words:
            for key in (f"template {template}", f"script {script}"):
                sums[key] = sums.get(key, Fertility()) + found
    return [
        Measure(f"tokens_per_{unit}", other=key, value=getattr(found, f"per_{unit}"), stimuli=stimuli[key])
        for key, found in sorted(sums.items())
        for unit in ("word", "byte", "character")
    ]
