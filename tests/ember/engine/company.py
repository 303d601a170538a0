"""Run as a program: does a prompt's bits depend on its company? Prints one JSON object a model, each on its line.

    python -m tests.ember.engine.company MODEL ... SEED

Kept apart because OpenBLAS picks its kernels once per process, by environment variables that tests must not change.
"""

import json
import sys
from collections.abc import Sequence

import numpy as np
import threadpoolctl

from ember.capture import select_acting
from ember.card import BoundModel
from ember.engine.invariance import rows_keep_bits
from ember.engine.runner import run_unit
from ember.engine.session import Session
from ember.gguf import open_gguf
from ember.hooks import Experiment, ModelContext, ModelFamily, TracingState
from ember.hooks.runner import Runner
from ember.models import bind_model
from ember.sites import NO_LAYER, SITES
from ember.work import ALL_STEPS, CaptureWork, InterventionWork, Tokens, UnitWork

Row = tuple[bytes, ...]
Acts = Sequence[InterventionWork]


class Bench:
    """One model on one route with a number of threads and a memory budget."""

    def __init__(self, path: str, route: str, threads: int = 1, budget: int = 1 << 30) -> None:
        file = open_gguf(path)
        self.bound = bind_model(file)
        self.session = Session.make(file, route, threads, budget, threadpoolctl.ThreadpoolController())
        self.shapes = [info.shape for info in file.tensors.values() if len(info.shape) == 2]

    def keeps_bits(self) -> bool:
        with self.session.limits():
            return rows_keep_bits(self.shapes)

    def run(self, prompts: Sequence[Tokens], acts: Acts = (), *, watched: bool = False) -> list[Row]:
        """All that each prompt yields, as bytes: states at every layer and position, logits, continuation."""
        layers = tuple(range(self.bound.card.n_layers))
        everywhere = tuple(tuple(range(len(p))) for p in prompts)
        ends = tuple((len(p) - 1,) for p in prompts)
        captures = (
            CaptureWork("after_attention", layers, everywhere),
            CaptureWork("after_layer", layers, everywhere),
            CaptureWork("after_layer", layers, everywhere, pooled=True),
            CaptureWork("before_logits", (-1,), ends),
            CaptureWork("after_logits", (-1,), ends),
        )
        with self.session.limits():
            work = UnitWork(tuple(prompts), captures, max_tokens=6, interventions=tuple(acts))
            runners = {i: watcher(self.bound) for i in range(len(prompts))} if watched else {}
            result = run_unit(self.bound, self.session.backend, work, runners)
        rows, start = [], 0
        for i, prompt in enumerate(prompts):
            span = slice(start, start := start + len(prompt))
            taken = [result.captures[0][:, span], result.captures[1][:, span], *(c[:, i] for c in result.captures[2:])]
            rows.append((*(a.tobytes() for a in taken), repr(result.produced[i]).encode()))
        return rows


class Noop(Experiment):
    """Does nothing, though it may."""

    name = "noop"


def watcher(bound: BoundModel) -> Runner:
    card = bound.card
    family = ModelFamily(card.architecture)
    context = ModelContext(family, None, card.architecture, card.n_layers, card.hidden_size)
    return Runner([Noop()], context, TracingState.DISABLED)


def random_acts(
    rng: np.random.Generator, prompts: Sequence[Tokens], bound: BoundModel, victims: set[int], strength: float | None
) -> list[InterventionWork]:
    """Operations of every kind at every site on the prompts `victims`; void ones where `strength` is 0."""
    card, acts = bound.card, []
    for site in SITES.values():
        for operation in ("zero", "scale", "add", "replace", "interpolate", "project_out"):
            if strength == 0 and operation in ("zero", "replace"):
                continue
            positions = tuple(
                (int(rng.integers(len(p))) if site.per_layer else len(p) - 1,) if i in victims else ()
                for i, p in enumerate(prompts)
            )
            width = getattr(card, f"{site.width}_size")
            acts.append(
                InterventionWork(
                    operation,  # type: ignore[arg-type]
                    site.name,
                    (int(rng.integers(card.n_layers)),) if site.per_layer else (NO_LAYER,),
                    positions,
                    tuple((int(rng.integers(3)), ALL_STEPS) if i in victims else () for i in range(len(prompts))),
                    float(rng.uniform(0.1, 2)) if strength is None else strength + (operation == "scale"),
                    None if operation in ("zero", "scale") else rng.standard_normal(width).astype(np.float32),
                )
            )
    return acts


def act(bench: Bench, rng: np.random.Generator, prompts: list[Tokens], plain: list[Row]) -> dict[str, int]:
    """Count prompts that others' interventions changed, that void ones or watchers changed, or that company changed."""
    victims = set(rng.permutation(len(prompts))[: len(prompts) // 2].tolist())
    acts = random_acts(rng, prompts, bench.bound, victims, None)
    acted = bench.run(prompts, acts)
    bystanders = [i for i in range(len(prompts)) if i not in victims]
    some = min(victims)
    alone = bench.run([prompts[some]], [select_acting(one, [some]) for one in acts])
    void = bench.run(prompts, random_acts(rng, prompts, bench.bound, victims, 0.0))
    return {
        "bystanders": sum(acted[i] != plain[i] for i in bystanders),
        "victims_unchanged": sum(acted[i] == plain[i] for i in victims),
        "victim_alone": int(alone[0] != acted[some]),
        "void": _differences(void, plain),
        "watched": _differences(bench.run(prompts, watched=True), plain),
    }


def random_prompts(rng: np.random.Generator, vocab: int) -> list[Tokens]:
    """Prompts that share prefixes of every kind: none, part, whole, across the borders of tiles."""
    stem = rng.integers(0, vocab, 80)
    lengths = [
        (0, 1),
        (40, 1),
        (31, 1),
        (32, 1),
        (33, 7),
        (64, 3),
        *((int(rng.integers(0, 80)), int(rng.integers(1, 50))) for _ in range(6)),
    ]
    prompts = [np.concatenate([stem[:shared], rng.integers(0, vocab, own)]).astype(np.int32) for shared, own in lengths]
    return [*prompts, prompts[2].copy()]


def compare(path: str, route: str, seed: int) -> dict[str, object]:
    """Count prompts whose bits differ from the batch's: alone, shuffled, with two threads, streamed, with hooks."""
    rng = np.random.default_rng(seed)
    bench = Bench(path, route)
    prompts = random_prompts(rng, bench.bound.card.vocab_size)
    batch = bench.run(prompts)
    order = rng.permutation(len(prompts)).tolist()
    shuffled = bench.run([prompts[i] for i in order])
    return {
        "keeps_bits": bench.keeps_bits(),
        "alone": sum(bench.run([p])[0] != row for p, row in zip(prompts, batch, strict=True)),
        "shuffled": sum(shuffled[place] != batch[i] for place, i in enumerate(order)),
        "two_threads": _differences(Bench(path, route, threads=2).run(prompts), batch),
        "streamed": _differences(Bench(path, route, budget=0).run(prompts), batch),
        "again": _differences(bench.run(prompts), batch),
    } | act(bench, rng, prompts, batch)


def _differences(a: list[Row], b: list[Row]) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))


def main() -> None:
    """Compare each model on both routes."""
    *paths, seed = sys.argv[1:]
    kernels = [info.get("architecture") for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]
    for path in paths:
        routes = {route: compare(path, route, int(seed)) for route in ("reference", "fast")}
        print(json.dumps({"kernels": kernels, "routes": routes}))


if __name__ == "__main__":
    main()
