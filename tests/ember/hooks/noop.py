"""Run as a program: does an experiment that does nothing change a bit? Prints one JSON object a model and route.

    python -m tests.ember.hooks.noop MODEL ...

Kept apart because OpenBLAS picks its kernels once per process, by environment variables that tests must not change.
`alone` counts prompts whose bits differ with a no-op experiment when they run by themselves; `unit` those that differ
when they run together and all, one, or all but one have it.
"""

import json
import sys
from collections.abc import Sequence

import numpy as np
import threadpoolctl

import ember
from ember.hooks import Experiment
from ember.model import Model
from ember.sites import SITES
from ember.work import ALL_STEPS, CaptureWork, Tokens, UnitResult, UnitWork
from tests.ember.hooks.watchers import Nothing

ROUTES = ("reference", "fast")
DECODED = 5
Row = tuple[bytes, ...]


def prompts_of(model: Model) -> list[Tokens]:
    """Prompts of which some share prefixes, and two are equal; around the borders of tiles."""
    rng = np.random.default_rng(11)
    stem = rng.integers(0, model.vocab_size, 40)
    lengths = [(0, 1), (20, 1), (31, 2), (32, 1), (32, 9), (0, 33), (7, 5)]
    made = [np.concatenate([stem[:shared], rng.integers(0, model.vocab_size, own)]) for shared, own in lengths]
    return [prompt.astype(np.int32) for prompt in [*made, made[2]]]


def run(model: Model, prompts: Sequence[Tokens], hooked: Sequence[bool]) -> list[Row]:
    """All that each prompt yields, as bytes: every site and layer at every position and step, and the continuation."""
    everywhere = tuple(tuple(range(len(prompt))) for prompt in prompts)
    nowhere = ((),) * len(prompts)
    captures = []
    for site, about in SITES.items():
        layers = tuple(range(model.n_layers)) if about.per_layer else (-1,)
        captures += [CaptureWork(site, layers, everywhere), CaptureWork(site, layers, nowhere, step=ALL_STEPS)]
    work = UnitWork(tuple(prompts), tuple(captures), max_tokens=DECODED)
    experiments: list[list[Experiment]] = [[Nothing()] if one else [] for one in hooked]
    return _rows(model.run_unit(work, experiments if any(hooked) else ()), prompts)


def _rows(result: UnitResult, prompts: Sequence[Tokens]) -> list[Row]:
    rows, start = [], 0
    for index, prompt in enumerate(prompts):
        spans = (slice(start, start := start + len(prompt)), slice(index * (DECODED - 1), (index + 1) * (DECODED - 1)))
        taken = [found[:, spans[number % 2]].tobytes() for number, found in enumerate(result.captures)]
        rows.append((*taken, repr(result.produced[index]).encode()))
    return rows


def compare(path: str, route: str) -> dict[str, object]:
    """Count the prompts whose bits differ."""
    with ember.open(path, route=route, threads=1) as model:  # type: ignore[arg-type]
        prompts = prompts_of(model)
        n = len(prompts)
        free = run(model, prompts, [False] * n)
        patterns = {"all": [True] * n, "one": [i == 2 for i in range(n)], "all but one": [i != 4 for i in range(n)]}
        alone = [run(model, [prompt], [False]) != run(model, [prompt], [True]) for prompt in prompts]
        unit = {
            name: sum(a != b for a, b in zip(free, run(model, prompts, hooked), strict=True))
            for name, hooked in patterns.items()
        }
        return {"keeps_bits": model.keeps_bits, "alone": sum(alone), "unit": unit}


def main() -> None:
    """Compare each model on both routes."""
    kernels = [info.get("architecture") for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]
    for path in sys.argv[1:]:
        for route in ROUTES:
            print(json.dumps({"kernels": kernels, "model": path, "route": route, **compare(path, route)}))


if __name__ == "__main__":
    main()
