"""Running a unit: from prompts and captures to rows, continuations and scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ember.card import BoundModel
from ember.engine.attention import Index
from ember.engine.backend import Backend
from ember.engine.cache import KVCache
from ember.engine.choosing import Choosing, Continuations, Listener
from ember.engine.decode import Decode
from ember.engine.head import Chooser, Greedy, Likelihood, Ranked, Rows, Scan, Top
from ember.engine.prefill import Prefill
from ember.engine.sinks import Sink, StepSink
from ember.engine.stage import Stage, least_private
from ember.hooks.runner import Runner
from ember.sites import NO_LAYER, SITES
from ember.units import PrefixTree, build_tree
from ember.work import Floats, NonFinite, Score, TopTokens, UnitResult, UnitWork


def run_unit(
    model: BoundModel,
    be: Backend,
    work: UnitWork,
    runners: Mapping[int, Runner] | None = None,
    listener: Listener | None = None,
) -> UnitResult:
    """Run all prompts of `work` and return what it asks for; `runners` hold the experiments of some prompts.

    Values that are not finite are looked for after every layer and reported; NumPy need not warn of them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return UnitRun(model, be, work, {} if runners is None else runners).run(listener)


@dataclass(frozen=True, slots=True)
class GuardRows:
    """Rows whose next token the guard scores, that token, and the prompt both belong to."""

    rows: Index
    targets: Index
    prompts: Index


@dataclass(slots=True)
class HeadResult:
    """What the head gave after the prompts."""

    chooser: Chooser | None = None
    guard: Likelihood | None = None
    ranked: Ranked | None = None
    top: Top | None = None
    captured: Greedy | None = None
    """Looks at the logits that captures take."""


class UnitRun:
    """One unit on its way through the model."""

    def __init__(self, model: BoundModel, be: Backend, work: UnitWork, runners: Mapping[int, Runner]) -> None:
        self.model, self.be, self.work = model, be, work
        private = least_private(work, [p in runners for p in range(len(work.prompts))])
        self.tree = build_tree(work.prompts, private, [(c.prompt, c.tokens) for c in work.continuations])
        card = model.card
        widths: dict[str, int] = {site.name: getattr(card, f"{site.width}_size") for site in SITES.values()}
        self.stage = Stage(work, self.tree, widths, runners)
        self.runners = dict(runners)
        self.choosing = Choosing(work)
        self.guard = guard_rows(work, self.tree)
        self.scored, self._score_starts, self._targets = scored_rows(work, self.tree)

    def run(self, listener: Listener | None) -> UnitResult:
        """Evaluate the prompts, continue them, and gather what was asked for."""
        stage, work = self.stage, self.work
        stage.begin()
        kept, depth = self._needed()
        cache = self._cache() if work.max_tokens else None
        prefill = Prefill(self.model, self.be, self.tree, stage, kept, depth)
        head = self._head(kept, prefill.run(cache), prefill)
        failures = dict(prefill.failures)
        for prompt in [*self._without_scores(head), *self._without_logits(head)]:
            failures.setdefault(prompt, NonFinite(NO_LAYER, "after_logits"))
            stage.runners.pop(prompt, None)
        continuations = Continuations(work, listener)
        if cache is not None and head.chooser is not None:
            self._decode(cache, head.chooser, continuations, failures)
        else:
            for prompt in sorted(stage.runners.keys() - failures):
                stage.complete(prompt, 0)
        return self._result(head, continuations, failures)

    @property
    def _asks_head(self) -> bool:
        work = self.work
        sites = any(not SITES[sink.work.site].per_layer for sink in self.stage.sinks)
        return bool(work.max_tokens or work.top_k or len(self.scored) or len(self.guard.rows) or self.runners or sites)

    def _needed(self) -> tuple[Index, int]:
        """Rows that somebody needs from the last layer to run, ascending, and how many layers run."""
        sinks, tree, n_layers = self.stage.sinks, self.tree, self.model.card.n_layers
        attended = self.stage.attention
        deepest = [_depth_of(s) for s in sinks] + [1 + max(s.work.layers) for s in attended]
        depth = n_layers if self._asks_head else max(deepest, default=0)
        if len(self.work.prompts) == 1 or self.runners:
            # pruning would save a single prompt little, and change the company of its rows when somebody watches it
            return np.arange(len(tree.tokens), dtype=np.int32), depth
        kept = [sink.rows for sink in sinks if _reads_end(sink, depth, n_layers)]
        kept += [tree.ends] if self.work.max_tokens or self.work.top_k else []
        kept += [sink.rows for sink in attended if depth - 1 in sink.work.layers]
        kept += [self.guard.rows, self.scored]
        return np.unique(np.concatenate(kept)).astype(np.int32), depth

    def _head(self, kept: Index, x: Floats, prefill: Prefill) -> HeadResult:
        """Final norm and head for the rows that need them."""
        found = HeadResult()
        if not self._asks_head:
            return found
        model, stage, work, tree = self.model, self.stage, self.work, self.tree
        h = model.family.final_norm(self.be, model.config, model.weights, x)  # [kept, D]
        stage.show("before_logits", NO_LAYER, h, tree.places(kept))
        prefill.check(h, kept, NonFinite(NO_LAYER, "before_logits"))
        ends = bool(work.max_tokens or work.top_k or stage.runners)
        asked = [self._captured, self.guard.rows, self.scored, *([tree.ends] if ends else [])]
        rows = np.unique(np.concatenate(asked)).astype(np.int32)
        if not len(rows):
            return found
        where = tree.places(rows)
        scan = Scan(model, self.be, whole=self._needs_whole_rows)
        scan.add(np.arange(len(rows)), PromptLogits(stage, where))
        self._add_consumers(scan, where, found)
        scan.run(np.ascontiguousarray(h[tree.places(kept)[rows]]))
        return found

    @property
    def _captured(self) -> Index:
        """Rows whose logits are captured, ascending."""
        rows = [sink.rows for sink in self.stage.sinks if sink.work.site == "after_logits"]
        return np.unique(np.concatenate([np.empty(0, np.int32), *rows]))

    @property
    def _needs_whole_rows(self) -> bool:
        work = self.work
        return self.stage.changes_logits or self.choosing.needs_whole_rows or bool(len(self.scored) or work.top_k)

    def _add_consumers(self, scan: Scan, where: Index, found: HeadResult) -> None:
        work, ends = self.work, where[self.tree.ends].astype(np.int64)
        if work.max_tokens:
            found.chooser = self.choosing.chooser(np.arange(len(work.prompts)))
            scan.add(ends, found.chooser)
        if len(self._captured):
            found.captured = Greedy(len(self._captured))
            scan.add(where[self._captured].astype(np.int64), found.captured)
        if len(self.guard.rows):
            found.guard = Likelihood(self.guard.targets)
            scan.add(where[self.guard.rows].astype(np.int64), found.guard)
        if len(self.scored):
            found.ranked = Ranked(self._targets)
            scan.add(where[self.scored].astype(np.int64), found.ranked)
        if work.top_k:
            found.top = Top(len(work.prompts), work.top_k)
            scan.add(ends, found.top)

    def _cache(self) -> KVCache:
        # the last token produced is never fed
        capacities = [len(prompt) + self.work.max_tokens - 1 for prompt in self.work.prompts]
        return KVCache(capacities, self.model.family.cache_shapes(self.model.config))

    def _decode(
        self, cache: KVCache, first: Chooser, continuations: Continuations, failures: dict[int, NonFinite]
    ) -> None:
        n = len(self.work.prompts)
        cache.advance(np.arange(n), np.diff(self.tree.starts)[:n])
        for prompt in np.flatnonzero(first.broken).tolist():
            failures.setdefault(prompt, NonFinite(NO_LAYER, "after_logits"))
            self.stage.runners.pop(prompt, None)
        whole = ~np.isin(np.arange(n), list(failures))
        decode = Decode(self.model, self.be, cache, self.stage, self.choosing)
        decode.run(np.flatnonzero(whole), first.ids[whole], continuations)
        failures |= decode.failures

    def _result(self, head: HeadResult, continuations: Continuations, failures: dict[int, NonFinite]) -> UnitResult:
        # asked for first, since an experiment may fail to say what it found
        found = {p: r.results() for p, r in self.runners.items() if p not in failures and r.failure is None}
        hooked = {p: str(r.failure) for p, r in self.runners.items() if r.failure is not None}
        failures = {p: why for p, why in failures.items() if p not in hooked}
        failed = failures.keys() | hooked.keys()
        rows = sum(map(len, self.work.prompts)) + sum(len(c.tokens) - 1 for c in self.work.continuations)
        result = UnitResult(
            [_rows_of(sink, failed) for sink in self.stage.all],
            continuations.produced() if self.work.max_tokens else [],
            rows,
            len(self.tree.tokens),
            failures=failures,
            scores=self._scores(head.ranked),
            top=[] if head.top is None else head.top.tokens,
            attention=[sink.result() for sink in self.stage.attention],
            hook_failures=hooked,
            findings=[(p, *one) for p, results in found.items() for one in results],
        )
        if head.guard is not None:
            # prompts that failed say nothing about the model
            values = head.guard.values()[~np.isin(self.guard.prompts, list(failed))]
            if len(values):
                result.guard_nll, result.guard_count = float(values.mean()), len(values)
        return result

    def _without_scores(self, head: HeadResult) -> list[int]:
        """Prompts of which a log-probability is not finite."""
        scores = zip(self.work.continuations, self._scores(head.ranked), strict=True) if head.ranked else ()
        found = [one.prompt for one, score in scores if not _all_finite(score.log_probabilities)]
        tops = enumerate(head.top.tokens if head.top else ())
        return found + [prompt for prompt, top in tops if not _all_finite(top.log_probabilities)]

    def _without_logits(self, head: HeadResult) -> list[int]:
        """Prompts of which captured logits are NaN, +inf, or -inf throughout; single ones may be -inf (a mask)."""
        if head.captured is None or not head.captured.broken.any():
            return []
        broken = self._captured[head.captured.broken]
        return [p for p in range(len(self.work.prompts)) if np.isin(self.tree.path(p), broken).any()]

    def _scores(self, ranked: Ranked | None) -> list[Score]:
        if ranked is None:
            return []
        ends = [*self._score_starts[1:], len(self.scored)]
        return [ranked.score(first, end) for first, end in zip(self._score_starts, ends, strict=True)]


def predictions(model: BoundModel, be: Backend, hidden: Floats, k: int) -> list[TopTokens]:
    """The k most likely tokens when hidden states [T, D] go through the final norm and the head at once."""
    h = model.family.final_norm(be, model.config, model.weights, hidden)  # [T, D]
    top = Top(len(h), k)
    scan = Scan(model, be, whole=True)
    scan.add(np.arange(len(h)), top)
    scan.run(h)
    return top.tokens


class PromptLogits:
    """Shows the logits of prompts to the stage (see `ember.engine.head.Consumer`)."""

    def __init__(self, stage: Stage, where: Index) -> None:
        self._stage, self._where = stage, where

    def take(self, rows: Rows, start: int, scores: Floats) -> None:
        """See `Consumer.take`."""
        inside = (self._where >= rows[0]) & (self._where <= rows[-1])
        where = np.where(inside, self._where - rows[0], -1).astype(np.int32)
        self._stage.show("after_logits", NO_LAYER, scores, where, slice(start, start + scores.shape[1]))


def _rows_of(sink: Sink | StepSink, failed: set[int]) -> Floats:
    return sink.result() if isinstance(sink, Sink) else sink.result(failed)


def _all_finite(values: Sequence[float]) -> bool:
    return all(map(math.isfinite, values))


def _depth_of(sink: Sink) -> int:
    deepest = max(sink.work.layers)
    return deepest if sink.work.site == "before_layer" else deepest + 1


def _reads_end(sink: Sink, depth: int, n_layers: int) -> bool:
    if not SITES[sink.work.site].per_layer:
        return True
    if sink.work.site == "before_layer":
        return depth in sink.work.layers and depth < n_layers
    return depth - 1 in sink.work.layers


def scored_rows(work: UnitWork, tree: PrefixTree) -> tuple[Index, list[int], Rows]:
    """Rows whose next token some continuation names, where each continuation's begin, and those tokens."""
    rows: list[int] = []
    starts: list[int] = []
    targets: list[int] = []
    for number, one in enumerate(work.continuations):
        starts.append(len(rows))
        rows += tree.path(len(work.prompts) + number)[len(work.prompts[one.prompt]) - 1 :].tolist()
        targets += one.tokens
    return np.array(rows, np.int32), starts, np.array(targets, np.int64)


def guard_rows(work: UnitWork, tree: PrefixTree) -> GuardRows:
    """Rows that feed the smoke guard: the first of the unit that have a next token of their own."""
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
