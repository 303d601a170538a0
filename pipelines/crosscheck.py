"""Whether the rows of a run agree with its manifest, with its stimuli and with each other.

Pure functions of decoded tables; each gives one line per problem.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines import tables
from pipelines.manifest import CaptureRecord, Manifest, records_sha256, sample_order_sha256
from pipelines.parts import PartFile
from pipelines.rows import LABEL_PREFIX, TOKEN_COLUMNS

Key = tuple[str, str, int]
KEY_COLUMNS = ("sample_index", "step", "position")


@dataclass(frozen=True, slots=True)
class Stimuli:
    """What the stimuli say about the samples of a run."""

    ids: Any
    """Arrow column."""
    tokens: NDArray[np.int32]
    """All token ids, sample after sample."""
    starts: NDArray[np.int64]
    """[samples + 1] where each sample's tokens start."""
    expected: Any
    """Arrow column."""

    @classmethod
    def of(cls, table: tables.Table) -> "Stimuli":
        """Take them from a run's table of stimuli."""
        return cls(table["id"], *tables.ragged(table, "token_ids"), table["expected"])


@dataclass(slots=True)
class PartRows:
    """The keys of one part of `activations` or `logits`, gathered group by group."""

    keys: dict[Key, list[NDArray[np.int32]]] = field(default_factory=dict)
    """[3, rows] arrays of sample, step and position."""

    def add(self, group: tables.Table) -> None:
        """Note the rows of one row group."""
        told = [tables.only_value(group, name) for name in ("capture", "site", "layer")]
        found = np.stack([tables.column(group, name) for name in KEY_COLUMNS])
        self.keys.setdefault((str(told[0]), str(told[1]), int(told[2])), []).append(found)


def stimuli_problems(table: tables.Table, manifest: Manifest) -> Iterator[str]:
    """Compare the table of stimuli with the manifest's hashes."""
    if not np.array_equal(tables.column(table, "sample_index"), np.arange(manifest.samples)):
        yield f"its sample indices are not 0 to {manifest.samples - 1} in order"
    if sample_order_sha256(tables.column(table, "source_index").tolist()) != manifest.inputs.sample_order_sha256:
        yield "the order of its samples is not that of sample_order_sha256"
    if records_sha256(_records(table)) != manifest.inputs.stimuli_sha256:
        yield "its stimuli are not those of stimuli_sha256"


def _records(table: tables.Table) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in row.items() if not (v is None and k.startswith(LABEL_PREFIX))}
        for row in table.drop_columns(list(TOKEN_COLUMNS)).to_pylist()
    ]


def group_problems(group: tables.Table, stimuli: Stimuli) -> Iterator[str]:
    """Compare ids and tokens of rows with the stimuli."""
    samples = tables.column(group, "sample_index")
    if len(samples) and not 0 <= samples.min() <= samples.max() < len(stimuli.ids):
        yield "a sample index is outside the stimuli"
        return
    if not tables.same_texts(group["stimulus_id"], stimuli.ids, samples):
        yield "a stimulus_id is not the one that stimuli.parquet gives to its sample_index"
    if "expected" in group.column_names and not tables.same_texts(group["expected"], stimuli.expected, samples):
        yield "an expected text is not the one that stimuli.parquet gives to its sample"
    yield from _token_problems(group, samples, stimuli)


def _token_problems(group: tables.Table, samples: NDArray[np.int32], stimuli: Stimuli) -> Iterator[str]:
    if "position" not in group.column_names:
        lengths = (stimuli.starts[1:] - stimuli.starts[:-1])[samples]
        if not np.array_equal(tables.column(group, "prompt_tokens"), lengths):
            yield "prompt_tokens is not the number of tokens that stimuli.parquet gives"
        return
    position = tables.column(group, "position")
    fed = (tables.column(group, "step") == -1) & (position >= 0)
    at = stimuli.starts[samples[fed]] + position[fed]
    if (at >= stimuli.starts[samples[fed] + 1]).any():
        yield "a position is beyond the end of its prompt"
    elif not np.array_equal(tables.column(group, "token_id")[fed], stimuli.tokens[at]):
        yield "a token_id is not the one that stimuli.parquet gives at its position"


def capture_problems(part: PartFile, rows: PartRows, manifest: Manifest) -> Iterator[str]:
    """Compare the keys of one part with the captures: nothing absent, nothing twice, nothing else."""
    captures = [capture for capture in manifest.origin.captures if capture.table == part.table]
    expected = _expected_samples(part, manifest)
    for capture in captures:
        yield from _one_capture(capture, rows, expected)
    known = {(capture.name, capture.site, layer) for capture in captures for layer in capture.layers}
    for name, site, layer in sorted(rows.keys.keys() - known):
        yield f"has rows of capture {name!r}, site {site}, layer {layer}, which the manifest does not list"


def generation_problems(part: PartFile, samples: NDArray[np.int32], manifest: Manifest) -> Iterator[str]:
    """Compare the samples of a part of `generations` with its range."""
    if (np.diff(samples) <= 0).any():
        yield "its samples are not in ascending order, or one is there twice"
    yield from _coverage(samples, _expected_samples(part, manifest), "", needed=True)


def tiling_problems(table: str, parts: Sequence[PartFile], manifest: Manifest) -> Iterator[str]:
    """Whether the ranges of a table's parts cover all samples but the failed ones, each once."""
    failed, end = set(manifest.failed_samples), 0
    ranges = sorted((part.sample_start, part.sample_end) for part in parts)
    if any(not 0 <= start <= stop <= manifest.samples for start, stop in ranges):
        yield f"{table}: a part's range of samples is not within 0 to {manifest.samples}"
        return
    for start, stop in [*ranges, (manifest.samples, manifest.samples)]:
        if start < end:
            yield f"{table}: {_listed(range(start, end))} in two parts"
        if absent := [sample for sample in range(end, start) if sample not in failed]:
            yield f"{table}: {_listed(absent)} in no part, and not among the failed"
        end = max(end, stop)


def _one_capture(capture: CaptureRecord, rows: PartRows, expected: NDArray[np.int64]) -> Iterator[str]:
    first = None
    for layer in capture.layers:
        where = f"capture {capture.name!r}, site {capture.site}, layer {layer}: "
        found = np.concatenate(rows.keys.get((capture.name, capture.site, layer), [np.empty((3, 0), np.int32)]), axis=1)
        if not _ascending(found):
            yield where + "its rows are not in ascending order of sample, step and position, or one is there twice"
        needed = not capture.position.startswith("generated")
        yield from _coverage(found[0], expected, where, needed=needed)
        if first is not None and not np.array_equal(found, first):
            yield where + "its rows are not those of the capture's other layers"
        first = found if first is None else first


def _coverage(samples: NDArray[np.int32], expected: NDArray[np.int64], where: str, *, needed: bool) -> Iterator[str]:
    if (extra := np.setdiff1d(samples, expected)).size:
        yield f"{where}{_listed(extra.tolist())} outside the part's range or among the failed"
    if needed and (absent := np.setdiff1d(expected, samples)).size:
        yield f"{where}{_listed(absent.tolist())} without a row"


def _expected_samples(part: PartFile, manifest: Manifest) -> NDArray[np.int64]:
    return np.setdiff1d(np.arange(part.sample_start, part.sample_end), np.array(manifest.failed_samples, np.int64))


def _ascending(keys: NDArray[np.int32]) -> bool:
    order = np.lexsort(keys[::-1])
    in_order = np.array_equal(order, np.arange(keys.shape[1]))
    return in_order and not (keys[:, 1:] == keys[:, :-1]).all(axis=0).any()


def _listed(samples: Sequence[int]) -> str:
    shown = ", ".join(map(str, samples[:5])) + (f" and {len(samples) - 5} more" if len(samples) > 5 else "")
    return f"sample {shown} is" if len(samples) == 1 else f"samples {shown} are"
