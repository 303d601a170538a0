"""Who looks at and who changes the tensors of a unit, and in which order.

At each site: captures that observe `before`, interventions, experiments, captures that observe `after`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ember.engine.attention_sink import AttentionSink
from ember.engine.operations import Operation
from ember.engine.sinks import Sink, StepSink
from ember.hooks.runner import Runner
from ember.sites import SITES
from ember.units import PrefixTree
from ember.work import Floats, UnitWork

Place = tuple[str, int]
ALL_COLUMNS = slice(None)


class Stage:
    """Everybody that a unit's tensors are shown to."""

    def __init__(
        self, work: UnitWork, tree: PrefixTree, widths: Mapping[str, int], runners: Mapping[int, Runner]
    ) -> None:
        self._tree = tree
        self.runners = dict(runners)
        """Experiments by prompt; a prompt that failed is taken out."""
        self.all: list[Sink | StepSink] = [
            Sink(c, tree, widths[c.site]) if c.step is None else StepSink(c, len(work.prompts), widths[c.site])
            for c in work.captures
        ]
        """One sink a capture, in the order of the captures."""
        self.attention = [AttentionSink(w, tree) for w in work.attention]
        self.sinks = [sink for sink in self.all if isinstance(sink, Sink)]
        self.step_sinks = [sink for sink in self.all if isinstance(sink, StepSink)]
        acting = [w for w in work.interventions if not w.changes_nothing]
        placed = [sink if isinstance(sink, Sink) else None for sink in self.all]
        self._operations = [Operation(w, tree, placed) for w in acting]
        self._at: dict[Place, list[Operation]] = defaultdict(list)
        for operation in self._operations:
            for layer in operation.work.layers:
                self._at[operation.work.site, layer].append(operation)
        self._before, self._after = _by_place(self.sinks, "before"), _by_place(self.sinks, "after")
        self._step_before = _by_place(self.step_sinks, "before")
        self._step_after = _by_place(self.step_sinks, "after")
        self.step, self.alive = -1, np.empty(0, np.int64)
        # one test is all that the path costs where nobody looks and nobody acts
        self._prompts_seen = bool(self.sinks or self._operations or runners)
        self._steps_seen = bool(self.step_sinks or any(op.work.steps for op in self._operations) or runners)

    @property
    def needs_whole_layers(self) -> bool:
        """Whether all rows of a layer must be shown together."""
        return bool(self.runners) or any(op.work.capture is not None for op in self._operations)

    @property
    def changes_logits(self) -> bool:
        """Whether somebody may change logits, and so must see whole rows of them."""
        return bool(self.runners) or any(op.work.site == "after_logits" for op in self._operations)

    def wants(self, site: str, layer: int) -> bool:
        """Whether a capture takes the tensor of `site` in `layer` from the prompts."""
        return (site, layer) in self._before or (site, layer) in self._after

    def show(self, site: str, layer: int, a: Floats, where: NDArray[np.int32], columns: slice = ALL_COLUMNS) -> None:
        """Show a tensor of the prompts; `where` gives each tree row's place in `a`, or -1."""
        if not self._prompts_seen:
            return
        at = (site, layer)
        for sink in self._before.get(at, ()):
            sink.put(layer, a, where, columns)
        for operation in self._at.get(at, ()):
            operation.act(layer, a, where)
        for prompt, runner in self.runners.items():
            for rows in self._rows_of(prompt, site, where):
                runner.show(site, layer, a[rows])
        for sink in self._after.get(at, ()):
            sink.put(layer, a, where, columns)

    def _rows_of(self, prompt: int, site: str, where: NDArray[np.int32]) -> Iterator[slice]:
        # rows of a prompt with an experiment lie together, since it shares none; the logits sites fire for the last
        path = self._tree.path(prompt)
        first = int(where[path[0] if SITES[site].per_layer else path[-1]])
        if first >= 0:
            yield slice(first, first + (len(path) if SITES[site].per_layer else 1))

    def begin(self) -> None:
        """Tell the experiments that their model is loaded and their prompts are about to be evaluated."""
        for prompt, runner in self.runners.items():
            runner.load()
            runner.prefill(len(self._tree.path(prompt)))

    def complete(self, prompt: int, generated: int) -> None:
        """Tell the experiments of a prompt that it is done."""
        if prompt in self.runners:
            self.runners[prompt].complete(len(self._tree.path(prompt)), generated)

    def drop_failed(self) -> set[int]:
        """Take out the prompts whose experiments failed since the last call, and return them."""
        failed = {prompt for prompt, runner in self.runners.items() if runner.failure is not None}
        for prompt in failed:
            del self.runners[prompt]
        return failed

    def begin_step(self, step: int, alive: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """Begin the evaluation of one generated token of each sequence alive."""
        self.step, self.alive = step, alive
        for sink in self.step_sinks:
            sink.begin(step, alive)
        for sequence, position in zip(alive.tolist(), positions.tolist(), strict=True):
            if sequence in self.runners:
                self.runners[sequence].decode(position)

    def show_step(
        self, site: str, layer: int, a: Floats, rows: slice | None = None, columns: slice = ALL_COLUMNS
    ) -> None:
        """Show a tensor of the generated tokens: one line a sequence alive, or those of `rows` among them."""
        if not self._steps_seen:
            return
        at = (site, layer)
        rows = slice(0, len(self.alive)) if rows is None else rows
        for sink in self._step_before.get(at, ()):
            sink.put(layer, a, rows, columns)
        for operation in self._at.get(at, ()):
            operation.act_on_step(layer, a, self.alive[rows], self.step)
        if self.runners:
            for line, sequence in enumerate(self.alive[rows].tolist()):
                if sequence in self.runners:
                    self.runners[sequence].show(site, layer, a[line : line + 1])
        for sink in self._step_after.get(at, ()):
            sink.put(layer, a, rows, columns)


AnySink = TypeVar("AnySink", Sink, StepSink)


def _by_place(sinks: Sequence[AnySink], observe: str) -> dict[Place, list[AnySink]]:
    found: dict[Place, list[AnySink]] = defaultdict(list)
    for sink in sinks:
        if sink.work.observe == observe:
            for layer in sink.work.layers:
                found[sink.work.site, layer].append(sink)
    return dict(found)


def least_private(work: UnitWork, hooked: Sequence[bool]) -> list[int] | None:
    """For each prompt, the first position whose row it shares with nobody; None where all share everything.

    A prompt with an experiment shares nothing, one with interventions what lies before the earliest row they write.
    """
    limits = [0 if on else len(prompt) for prompt, on in zip(work.prompts, hooked, strict=True)]
    for one in work.interventions:
        if not one.changes_nothing:
            limits = [min([limit, *at]) for limit, at in zip(limits, one.positions, strict=True)]
    return None if all(limit == len(prompt) for limit, prompt in zip(limits, work.prompts, strict=True)) else limits
