"""Running a unit: from prompts and captures to rows and continuations."""

from dataclasses import dataclass

import numpy as np

from ember.card import BoundModel
from ember.engine.attention import Index
from ember.engine.backend import Backend
from ember.engine.cache import KVCache
from ember.engine.decode import decode
from ember.engine.head import Greedy, Likelihood, LogitsSink, scan
from ember.engine.prefill import Prefill
from ember.engine.sinks import Sink
from ember.sites import SITES
from ember.units import PrefixTree, build_tree
from ember.work import Floats, NonFinite, Produced, UnitResult, UnitWork


@dataclass(frozen=True, slots=True)
class GuardRows:
    """Rows whose next token the guard scores, that token, and the prompt both belong to."""

    rows: Index
    targets: Index
    prompts: Index


@dataclass(frozen=True, slots=True)
class Needs:
    """Which rows somebody needs, and from which depth."""

    ends: Index
    """[prompts] row of each prompt's last token."""
    guard: GuardRows
    depth: int
    """Layers to run."""
    kept: Index
    """Rows needed from the last of them, ascending."""


def run_unit(model: BoundModel, be: Backend, work: UnitWork) -> UnitResult:
    """Run all prompts of `work` and return what it asks for.

    Values that are not finite are looked for after every layer and reported; NumPy need not warn of them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _run(model, be, work)


def _run(model: BoundModel, be: Backend, work: UnitWork) -> UnitResult:
    tree = build_tree(work.prompts)
    card = model.card
    sinks = [Sink(c, tree, getattr(card, f"{SITES[c.site].width}_size")) for c in work.captures]
    needs = _needs(work, tree, sinks, card.n_layers)
    cache = _cache(model, work) if work.max_tokens else None
    prefill = Prefill(model, be, tree, sinks, needs.kept, needs.depth)
    x = prefill.run(cache)  # [kept, D]
    greedy, guard = _head(model, be, work, needs, sinks, x)
    failures = dict(prefill.failures)
    produced = _produce(model, be, work, tree, cache, greedy, failures)
    result = UnitResult([sink.result() for sink in sinks], produced, len(tree.rows), len(tree.tokens))
    if guard is not None:
        # prompts that failed say nothing about the model
        values = guard.values()[~np.isin(needs.guard.prompts, list(failures))]
        if len(values):
            result.guard_nll, result.guard_count = float(values.mean()), len(values)
    result.failures = failures
    return result


def _needs(work: UnitWork, tree: PrefixTree, sinks: list[Sink], n_layers: int) -> Needs:
    ends = tree.rows[tree.starts[1:] - 1]
    guard = _guard_rows(work, tree)
    head = bool(work.max_tokens or len(guard.rows) or any(not SITES[s.work.site].per_layer for s in sinks))
    depth = n_layers if head else max((_depth_of(s) for s in sinks), default=0)
    kept = [sink.rows for sink in sinks if _reads_end(sink, depth, n_layers)]
    if work.max_tokens:
        kept.append(ends)
    kept.append(guard.rows)
    rows = np.unique(np.concatenate(kept)).astype(np.int32)
    return Needs(ends, guard, depth, rows)


def _depth_of(sink: Sink) -> int:
    deepest = max(sink.work.layers)
    return deepest if sink.work.site == "before_layer" else deepest + 1


def _reads_end(sink: Sink, depth: int, n_layers: int) -> bool:
    if not SITES[sink.work.site].per_layer:
        return True
    if sink.work.site == "before_layer":
        return depth in sink.work.layers and depth < n_layers
    return depth - 1 in sink.work.layers


def _guard_rows(work: UnitWork, tree: PrefixTree) -> GuardRows:
    found: list[tuple[int, int, int]] = []
    for prompt in range(len(work.prompts)):
        path = tree.path(prompt)
        # a shared row's own continuation counts once, with the prompt that brought it
        own = [i for i in range(1, len(path)) if tree.owners[path[i]] == prompt]
        found += [(int(path[i - 1]), int(tree.tokens[path[i]]), prompt) for i in own]
        if len(found) >= work.guard_positions:
            break
    table = np.array(found[: work.guard_positions], np.int32).reshape(-1, 3)
    return GuardRows(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())


def _head(
    model: BoundModel, be: Backend, work: UnitWork, needs: Needs, sinks: list[Sink], x: Floats
) -> tuple[Greedy | None, Likelihood | None]:
    """Final norm and head for the rows that need them."""
    asking = [sink for sink in sinks if not SITES[sink.work.site].per_layer]
    if not (asking or work.max_tokens or len(needs.guard.rows)):
        return None, None
    h = model.family.final_norm(be, model.config, model.weights, x)  # [kept, D]
    where = np.full(int(needs.kept[-1]) + 1, -1, np.int32)
    where[needs.kept] = np.arange(len(needs.kept), dtype=np.int32)
    for sink in asking:
        if sink.work.site == "before_logits":
            sink.put(-1, h, where)
    _logits(model, be, [s for s in asking if s.work.site == "after_logits"], h, where)
    greedy = guard = None
    if work.max_tokens:
        greedy = Greedy(len(needs.ends))
        scan(model, be, np.ascontiguousarray(h[where[needs.ends]]), [greedy])
    if len(needs.guard.rows):
        guard = Likelihood(needs.guard.targets)
        scan(model, be, np.ascontiguousarray(h[where[needs.guard.rows]]), [guard])
    return greedy, guard


def _logits(model: BoundModel, be: Backend, sinks: list[Sink], h: Floats, where: Index) -> None:
    for sink in sinks:
        rows = np.unique(sink.rows)
        place = np.full(len(where), -1, np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        scan(model, be, np.ascontiguousarray(h[where[rows]]), [LogitsSink(sink, place)])


def _cache(model: BoundModel, work: UnitWork) -> KVCache:
    # the last token produced is never fed
    capacities = [len(prompt) + work.max_tokens - 1 for prompt in work.prompts]
    return KVCache(capacities, model.family.cache_shapes(model.config))


def _produce(
    model: BoundModel,
    be: Backend,
    work: UnitWork,
    tree: PrefixTree,
    cache: KVCache | None,
    greedy: Greedy | None,
    failures: dict[int, NonFinite],
) -> list[Produced]:
    if cache is None or greedy is None:
        return []
    cache.advance(np.arange(len(work.prompts)), np.diff(tree.starts))
    produced, broken = decode(model, be, cache, greedy, work.max_tokens, work.stop_ids)
    for prompt in broken:
        failures.setdefault(prompt, NonFinite(-1, "after_logits"))
    return produced
