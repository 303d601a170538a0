"""Directions of probes as .npy files that `source: {vector: …}` of an intervention takes, and the record of each.

A direction is what the probe multiplies a captured state with: [layers, width] float32, in the units of the states, not
standardised. Projected out of a state, the score of that class no longer depends on the state (`project_out`).
"""

import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.probes.config import split_name
from pipelines.probes.lbfgs import Doubles
from pipelines.probes.problems import Problem
from pipelines.probes.tasks import Arrays, Source


@dataclass(frozen=True, slots=True)
class Direction:
    """One file."""

    path: str
    data: bytes
    record: dict[str, Any]


def make_directions(problems: Sequence[Problem], found: Mapping[Source, Arrays]) -> Iterator[Direction]:
    """Directions of every capture, label, probe and class, over the layers of the capture."""
    states = [source for source in found if source.features == "states"]
    captures = dict.fromkeys((source.capture, source.site) for source in states)
    for name, site in captures:
        layers = [source for source in states if (source.capture, source.site) == (name, site)]
        for place, problem in enumerate(problems):
            kept = [key for key in found[layers[0]] if key.startswith(f"{place}.") and key.endswith(".weights")]
            for probe in (key.split(".")[1] for key in kept):
                arrays = [{part: found[source][f"{place}.{probe}.{part}"] for part in PARTS} for source in layers]
                yield from _of_probe(layers, problem, probe, arrays)


PARTS = ("weights", "bias", "strength")


def _of_probe(layers: Sequence[Source], problem: Problem, probe: str, arrays: Sequence[Arrays]) -> Iterator[Direction]:
    weights = np.stack([one["weights"] for one in arrays]).astype(np.float64)
    bias = np.stack([one["bias"] for one in arrays])
    first = layers[0]
    for k, name in enumerate(problem.classes):
        if len(problem.classes) == 2 and k == 0:
            continue
        values, intercepts = _direction(weights, bias, k)
        data = _npy(values.astype(np.float32))
        record = {
            "path": f"weights/{first.capture}/{_file_name(problem.label)}-{probe}-{k:03d}.npy",
            "sha256": hashlib.sha256(data).hexdigest(),
            "label": problem.label,
            "class": name,
            "against": problem.classes[0] if len(problem.classes) == 2 else "the mean of all classes",
            "probe": probe,
            "capture": first.capture,
            "site": first.site,
            "layers": [source.layer for source in layers],
            "position": first.position,
            "width": first.width,
            "intercepts": intercepts.tolist(),
            "strengths": [float(one["strength"][0]) for one in arrays],
            "strengths_chosen_on": split_name(problem.split),
            "rows": len(problem.task.rows),
        }
        yield Direction(str(record["path"]), data, record)


def _direction(weights: Doubles, bias: Doubles, k: int) -> tuple[Doubles, Doubles]:
    """[layers, width] and [layers]: a class against the mean of all, or the second of two against the first."""
    if weights.shape[1] == 2:
        return weights[:, 1] - weights[:, 0], bias[:, 1] - bias[:, 0]
    return weights[:, k] - weights.mean(axis=1), bias[:, k] - bias.mean(axis=1)


def _file_name(label: str) -> str:
    """A label as part of a file's name: what is no letter or digit of any script is written as its number."""
    return re.sub(r"[^\w.-]", lambda found: f"%{ord(found[0]):02x}", label)


def _npy(values: np.ndarray[Any, Any]) -> bytes:
    sink = io.BytesIO()
    np.save(sink, values, allow_pickle=False)
    return sink.getvalue()
