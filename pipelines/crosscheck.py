"""Whether the rows of a run agree with its manifest, with its stimuli and with each other.

Pure functions of decoded tables; each gives one line per problem.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.work import ALL_STEPS
from pipelines import tables
from pipelines.findings import Finding
from pipelines.manifest import CaptureRecord, Manifest, records_sha256, sample_order_sha256
from pipelines.parts import PartFile
from pipelines.rows import LABEL_PREFIX, TOKEN_COLUMNS

Key = tuple[str, str, int]
KEY_COLUMNS = ("sample_index", "step", "position")
RECORDS: Final = 1_000
"""Stimuli that are Python values at the same time."""


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
    labels: dict[str, Any]
    """Arrow columns."""

    @classmethod
    def of(cls, table: tables.Table) -> "Stimuli":
        """Take them from a run's table of stimuli."""
        names = [name for name in table.column_names if name.startswith(LABEL_PREFIX)]
        labels = {name.removeprefix(LABEL_PREFIX): table[name] for name in names}
        return cls(table["id"], *tables.ragged(table, "token_ids"), table["expected"], labels)

    def selected(self, where: Mapping[str, Sequence[str]]) -> NDArray[np.int64]:
        """Samples whose labels have the given values."""
        chosen = np.ones(len(self.ids), np.bool_)
        for name, values in where.items():
            column = self.labels[name].to_pylist() if name in self.labels else [None] * len(chosen)
            chosen &= np.array([value in values for value in column], np.bool_)
        return np.flatnonzero(chosen)


@dataclass(frozen=True, slots=True)
class Continuations:
    """What the table of generations says was generated."""

    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]
    """[samples + 1] where each sample's new tokens start."""

    @classmethod
    def of(cls, found: Mapping[int, Sequence[int]], samples: int) -> "Continuations":
        """Join the new tokens of samples; those without any have none."""
        lists = [np.array(found.get(sample, ()), np.int32) for sample in range(samples)]
        starts = np.concatenate([[0], np.cumsum([len(tokens) for tokens in lists])]).astype(np.int64)
        return cls(np.concatenate([np.empty(0, np.int32), *lists]), starts)

    def keys(self, samples: NDArray[np.int64], step: int) -> NDArray[np.int64]:
        """[2, rows] sample and step of every row that a capture of `step` has: n new tokens are n - 1 steps."""
        steps = np.maximum((self.starts[1:] - self.starts[:-1])[samples] - 1, 0)
        if step == ALL_STEPS:
            rows = np.concatenate([np.empty(0, np.int64), *(np.arange(n) for n in steps.tolist())])
            return np.stack([np.repeat(samples, steps), rows.astype(np.int64)])
        there = samples[steps > step]
        return np.stack([there, np.full(len(there), step, np.int64)])


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


def _records(table: tables.Table) -> Iterator[dict[str, Any]]:
    """Records of the stimuli in the user's order, made a few at a time."""
    told = table.drop_columns(list(TOKEN_COLUMNS))
    order = np.argsort(tables.column(table, "source_index"), kind="stable")
    for start in range(0, len(order), RECORDS):
        for row in tables.rows_at(told, order[start : start + RECORDS]).to_pylist():
            yield {k: v for k, v in row.items() if not (v is None and k.startswith(LABEL_PREFIX))}


def group_problems(group: tables.Table, stimuli: Stimuli, continuations: Continuations | None) -> Iterator[str]:
    """Compare ids and tokens of rows with the stimuli, and of generated steps with what was generated."""
    samples = tables.column(group, "sample_index")
    if len(samples) and not 0 <= samples.min() <= samples.max() < len(stimuli.ids):
        yield "a sample index is outside the stimuli"
        return
    if not tables.same_texts(group["stimulus_id"], stimuli.ids, samples):
        yield "a stimulus_id is not the one that stimuli.parquet gives to its sample_index"
    if "expected" in group.column_names and not tables.same_texts(group["expected"], stimuli.expected, samples):
        yield "an expected text is not the one that stimuli.parquet gives to its sample"
    yield from _token_problems(group, samples, stimuli)
    if continuations is not None and "position" in group.column_names:
        yield from _step_problems(group, samples, stimuli, continuations)


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


def _step_problems(
    group: tables.Table, samples: NDArray[np.int32], stimuli: Stimuli, continuations: Continuations
) -> Iterator[str]:
    """Step s is fed the new token s, at the position behind it, and produces the next one."""
    step = tables.column(group, "step")
    if (step < -1).any():
        yield "a step is below -1"
    at = np.flatnonzero(step >= 0)
    where = continuations.starts[samples[at]] + step[at]
    if (where + 1 >= continuations.starts[samples[at] + 1]).any():
        yield "a generated step is beyond the end of what was generated"
        return
    lengths = (stimuli.starts[1:] - stimuli.starts[:-1])[samples[at]]
    if not np.array_equal(tables.column(group, "position")[at], lengths + step[at]):
        yield "the position of a generated step is not the prompt's length plus the step"
    fed = tables.column(group, "token_id")[at], tables.column(group, "produced_id")[at]
    if not all(np.array_equal(ids, continuations.tokens[where + i]) for i, ids in enumerate(fed)):
        yield "token_id or produced_id of a generated step is not what was generated"


def capture_problems(
    part: PartFile, rows: PartRows, manifest: Manifest, stimuli: Stimuli, continuations: Continuations | None
) -> Iterator[str]:
    """Compare the keys of one part with the captures: nothing absent, nothing twice, nothing else.

    Rows of generated steps are compared with `continuations`, if these are known.
    """
    captures = [capture for capture in manifest.origin.captures if capture.table == part.table]
    expected = expected_samples(part, manifest)
    for capture in captures:
        selected = np.intersect1d(expected, stimuli.selected(capture.where))
        yield from _one_capture(capture, rows, selected, continuations)
    known = {(capture.name, capture.site, layer) for capture in captures for layer in capture.layers}
    for name, site, layer in sorted(rows.keys.keys() - known):
        yield f"has rows of capture {name!r}, site {site}, layer {layer}, which the manifest does not list"


def generation_problems(part: PartFile, samples: NDArray[np.int32], manifest: Manifest) -> Iterator[str]:
    """Compare the samples of a part of `generations` with its range."""
    if (np.diff(samples) <= 0).any():
        yield "its samples are not in ascending order, or one is there twice"
    yield from _coverage(samples, expected_samples(part, manifest), "", needed=True)


def finding_problems(part: PartFile, findings: Sequence[Finding], ids: Any, manifest: Manifest) -> Iterator[str]:
    """Compare what experiments found with the stimuli and the experiments that the manifest lists."""
    samples = np.array([finding.sample_index for finding in findings], np.int32)
    if (np.diff(samples) < 0).any():
        yield "its findings are not in the order of samples"
    yield from _coverage(samples, expected_samples(part, manifest), "", needed=False)
    listed = (manifest.origin.hooks or {}).get("experiments")
    known = [one.get("name") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    for finding in findings:
        there = 0 <= finding.sample_index < len(ids)
        if there and finding.stimulus_id != ids[finding.sample_index].as_py():
            yield "a stimulus_id is not the one that stimuli.parquet gives to its sample_index"
        if finding.experiment not in known:
            yield f"it has findings of {finding.experiment!r}, which the manifest does not list"


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


def _one_capture(
    capture: CaptureRecord, rows: PartRows, expected: NDArray[np.int64], continuations: Continuations | None
) -> Iterator[str]:
    first, step = None, step_of(capture.position)
    for layer in capture.layers:
        where = f"capture {capture.name!r}, site {capture.site}, layer {layer}: "
        found = np.concatenate(rows.keys.get((capture.name, capture.site, layer), [np.empty((3, 0), np.int32)]), axis=1)
        if not _ascending(found):
            yield where + "its rows are not in ascending order of sample, step and position, or one is there twice"
        yield from _coverage(found[0], expected, where, needed=step is None)
        if step is None:
            if (found[1] != -1).any():
                yield where + "it has rows of generated steps, but is not taken there"
        elif continuations is not None and not np.array_equal(found[:2], continuations.keys(expected, step)):
            yield where + "its rows are not one for each step that was generated"
        if first is not None and not np.array_equal(found, first):
            yield where + "its rows are not those of the capture's other layers"
        first = found if first is None else first


def step_of(position: str) -> int | None:
    """Return the generated step that a capture's position, as text, names; ALL_STEPS for every one, None for none."""
    if position == "generated":
        return ALL_STEPS
    found = re.fullmatch(r'\{"generated": (\d{1,9})\}', position)
    return int(found[1]) if found else None


def _coverage(samples: NDArray[np.int32], expected: NDArray[np.int64], where: str, *, needed: bool) -> Iterator[str]:
    if (extra := np.setdiff1d(samples, expected)).size:
        yield f"{where}{_listed(extra.tolist())} outside the part's range, among the failed, or not selected"
    if needed and (absent := np.setdiff1d(expected, samples)).size:
        yield f"{where}{_listed(absent.tolist())} without a row"


def expected_samples(part: PartFile, manifest: Manifest) -> NDArray[np.int64]:
    """Samples of a part's range that have not failed."""
    return np.setdiff1d(np.arange(part.sample_start, part.sample_end), np.array(manifest.failed_samples, np.int64))


def _ascending(keys: NDArray[np.int32]) -> bool:
    order = np.lexsort(keys[::-1])
    in_order = np.array_equal(order, np.arange(keys.shape[1]))
    return in_order and not (keys[:, 1:] == keys[:, :-1]).all(axis=0).any()


def _listed(samples: Sequence[int]) -> str:
    shown = ", ".join(map(str, samples[:5])) + (f" and {len(samples) - 5} more" if len(samples) > 5 else "")
    return f"sample {shown} is" if len(samples) == 1 else f"samples {shown} are"
