"""What a run says at its end, to people and to machines."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.estimates import size
from pipelines.manifest import Manifest
from pipelines.progress import clock
from pipelines.receipts import Receipt

EXIT_PARTIAL = 3


@dataclass(frozen=True, slots=True)
class Summary:
    """A finished run."""

    directory: str
    status: Literal["complete", "partial"]
    prompts: int
    failed: int
    parts: int
    bytes: int
    """Of all part files."""
    rows: int
    """Token rows of the run before sharing prefixes."""
    rows_computed: int
    """Token rows that were computed, equal prefixes counted once."""
    units_computed: int
    """Units computed in this session; 0 when there was nothing to do."""
    seconds: float
    tokens_per_second: float
    """While units ran in this session."""
    semantic_hash: str
    looks: tuple[str, ...]
    """Lines of Python that read the run."""

    @property
    def exit_status(self) -> int:
        """0, or 3 when prompts failed."""
        return EXIT_PARTIAL if self.failed else 0

    @property
    def record(self) -> dict[str, Any]:
        """The summary as plain data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Say what was written and how to look at it."""
        told = self._nothing() if self.units_computed == 0 else self._something()
        if self.failed:
            told += [
                f"{self.failed} prompts failed: see {self.directory}/failures.jsonl; "
                "those that ended a worker are tried again by the next run"
            ]
        return [*told, "look at it:", *(f"    {line}" for line in self.looks)]

    def _nothing(self) -> list[str]:
        return [f"nothing to do: {self.directory} is {self.status} ({self.prompts - self.failed} prompts)"]

    def _something(self) -> list[str]:
        shared = f", {self.rows / self.rows_computed:.1f}x shared" if self.rows_computed else ""
        return [
            f"{self.status}: {self.prompts - self.failed} of {self.prompts} prompts, {self.rows:,} token rows{shared}; "
            f"{clock(self.seconds)}, {self.tokens_per_second:,.0f} tok/s",
            f"wrote {self.parts} files, {size(self.bytes)}, and manifest.json in {self.directory}",
        ]


def make_summary(
    run_dir: Path,
    manifest: Manifest,
    done: Sequence[Receipt],
    column: str,
    *,
    computed: int,
    seconds: float,
    speed: float,
) -> Summary:
    """Sum up a finished run whose receipts are `done`.

    `column` of its stimuli is shown beside a matrix; this session took `seconds` and computed `computed` units.
    """
    return Summary(
        directory=str(run_dir),
        status=manifest.status,
        prompts=manifest.samples,
        failed=len(manifest.failed_samples),
        parts=len(manifest.parts),
        bytes=sum(part.bytes for part in manifest.parts),
        rows=sum(receipt.rows for receipt in done),
        rows_computed=sum(receipt.rows_computed for receipt in done),
        units_computed=computed,
        seconds=round(seconds, 3),
        tokens_per_second=speed,
        semantic_hash=manifest.semantic_hash,
        looks=make_looks(run_dir, manifest, column),
    )


def make_looks(directory: Path, manifest: Manifest, column: str) -> tuple[str, ...]:
    """Lines of Python that read one capture of a run as a matrix beside a column, or what else it holds."""
    partial = ", partial=True" if manifest.failed_samples else ""
    lines = ["import pipelines", f"run = pipelines.load({str(directory)!r}{partial})"]
    if not manifest.origin.captures and manifest.origin.attention:
        return (*lines, f"table = run.attention(layer={manifest.origin.attention[0].layers[0]})")
    if not manifest.origin.captures:
        return (*lines, _without_captures(manifest))
    capture = manifest.origin.captures[0]
    layer = f", layer={capture.layers[len(capture.layers) // 2]}" if capture.layers != (-1,) else ""
    whole = _one_row(capture.position) and not capture.where
    rows = manifest.samples - len(manifest.failed_samples) if whole else "rows"
    step = ", step=None" if capture.position.startswith(("generated", '{"generated"')) else ""
    named = f'site="{capture.site}"{layer}, capture="{capture.name}"{step}'
    lines.append(f"X = run.matrix({named})  # float32 [{rows}, {capture.width}]")
    return (*lines, f"y = run.stimuli[{column!r}].to_pylist()")


def _without_captures(manifest: Manifest) -> str:
    if manifest.origin.generation is not None:
        return 'texts = run.generations["text"].to_pylist()'
    return "scores = run.generations.to_pylist()" if manifest.origin.scoring is not None else "found = run.findings"


def _one_row(position: str) -> bool:
    return position not in ("all", "generated") and '"all"' not in position
