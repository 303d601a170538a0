"""What a causal trace says at its end, to people and to machines."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipelines.canonical import plain
from pipelines.causal_trace.effects import Column, Control, Effect, Panel
from pipelines.causal_trace.pairs import EVERYWHERE

EXIT_PARTIAL: Final = 3
STRONGEST: Final = 3
"""Cells of a panel that are told in words."""


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A finished causal trace."""

    directory: str
    pairs: int
    patches: int
    """Patches with a result."""
    failed: int
    """Patches without one; the second run's failures.jsonl says why."""
    panels: tuple[Panel, ...]
    differences: tuple[tuple[str, float, float], ...]
    """For each pair its name and the log-probability of the answer after its clean and its corrupt prompt."""
    controls: tuple[Control, ...]
    files: tuple[str, ...]
    """What was made from the runs, in `directory`."""
    notes: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """0, or 3 when patches failed."""
        return EXIT_PARTIAL if self.failed else 0

    @property
    def control(self) -> dict[str, Any]:
        """How close putting everything back comes to the clean prompt."""
        apart = [abs(one.patched - one.clean) for one in self.controls]
        return {"pairs": len(apart), "exact": apart.count(0.0), "max_difference": max(apart, default=None)}

    @property
    def record(self) -> dict[str, Any]:
        """The summary as plain data; what is undefined is null."""
        told: dict[str, Any] = plain(self)
        told["control"] = self.control
        told["differences"] = [
            {"pair": name, "clean": clean, "corrupt": corrupt, "difference": clean - corrupt}
            for name, clean, corrupt in self.differences
        ]
        found: dict[str, Any] = _finite(told)
        return found

    def lines(self) -> list[str]:
        """Say what was found and where it lies."""
        failed = f", {self.failed} failed" if self.failed else ""
        return [
            f"{_count(self.pairs, 'pair')}, {_count(self.patches, 'patch', 'patches')}{failed}",
            *self._control(),
            *(line for panel in self.panels for line in _panel(panel)),
            *(f"note      {note}" for note in self.notes),
            f"wrote {', '.join(self.files)} in {self.directory}",
        ]

    def _control(self) -> Iterator[str]:
        told = self.control
        if told["pairs"]:
            yield (
                f"control   all inputs put back give the clean log-probability exactly for {told['exact']} of "
                f"{_count(told['pairs'], 'pair')}; largest difference {told['max_difference']:.3g} nats"
            )


def summarise(
    directory: Path,
    effects: Sequence[Effect],
    controls: Sequence[Control],
    panels: Sequence[Panel],
    *,
    planned: int,
    files: Sequence[str],
    notes: Sequence[str],
) -> TraceSummary:
    """Sum up a trace of `planned` patches, controls included."""
    pairs = {effect.pair: (effect.pair, effect.clean, effect.corrupt) for effect in effects}
    return TraceSummary(
        directory=str(directory),
        pairs=len(pairs),
        patches=len(effects),
        failed=planned - len(effects) - len(controls),
        panels=tuple(panels),
        differences=tuple(pairs.values()),
        controls=tuple(controls),
        files=tuple(files),
        notes=tuple(notes),
    )


def _panel(panel: Panel) -> Iterator[str]:
    named = f"{panel.group}, " if panel.group else ""
    pairs = _count(panel.pairs, "pair")
    cells = [
        (cell.recovery, layer, column)
        for layer, row in zip(panel.layers, panel.cells, strict=True)
        for column, cell in zip(panel.columns, row, strict=True)
        if math.isfinite(cell.recovery) and column.role != EVERYWHERE.role
    ]
    most = "most comes back at" if cells else "nothing to come back"
    yield f"{named}{panel.site}: {pairs}, {panel.gap:.3f} nats from corrupt to clean; {most}"
    for recovery, layer, column in sorted(cells, key=lambda cell: -cell[0])[:STRONGEST]:
        yield f"    {recovery:7.1%}  layer {layer}, {_place(column)}"


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _place(column: Column) -> str:
    token = f" ({column.token!r})" if column.token else ""
    return f"{column.role} {column.role_index + 1}{token}"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
