"""Whether the rows of `attention` agree with the manifest, with the stimuli and with themselves.

Pure functions of decoded tables; each gives one line per problem.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines import tables
from pipelines.crosscheck import Stimuli
from pipelines.manifest import AttentionRecord

SUM: Final = 1e-4
"""By how much float32 weights of one query may miss 1 together."""
Keys = NDArray[np.int64]


def attention_group_problems(group: tables.Table, stimuli: Stimuli) -> Iterator[str]:
    """Check the weights of every row: as many as positions that the query sees, not negative, together 1."""
    samples, position = (tables.column(group, name).astype(np.int64) for name in ("sample_index", "position"))
    if len(samples) and not 0 <= samples.min() <= samples.max() < len(stimuli.ids):
        yield "a sample index is outside the stimuli"
        return
    if not tables.same_texts(group["stimulus_id"], stimuli.ids, tables.column(group, "sample_index")):
        yield "a stimulus_id is not the one that stimuli.parquet gives to its sample_index"
    at = stimuli.starts[samples] + position
    if (position < 0).any() or (at >= stimuli.starts[samples + 1]).any():
        yield "a position is not within its prompt"
        return
    if not np.array_equal(tables.column(group, "token_id"), stimuli.tokens[at]):
        yield "a token_id is not the one that stimuli.parquet gives at its position"
    weights, starts = tables.ragged(group, "weights")
    if not np.array_equal(np.diff(starts), position + 1):
        yield "a row has another number of weights than positions up to its own"
        return
    sums = np.add.reduceat(weights.astype(np.float64), starts[:-1]) if len(samples) else np.empty(0)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (np.abs(sums - 1) <= SUM).all()):
        yield "the weights of a row are not numbers from 0 that add up to 1"


def attention_keys(group: tables.Table) -> tuple[tuple[str, int], Keys]:
    """Return capture and layer of a row group, and [3, rows] sample, position and head."""
    key = str(tables.only_value(group, "capture")), int(tables.only_value(group, "layer"))
    found = [tables.column(group, name).astype(np.int64) for name in ("sample_index", "position", "head")]
    return key, np.stack(found)


def attention_problems(
    keys: dict[tuple[str, int], list[Keys]], records: Sequence[AttentionRecord], expected: Keys, stimuli: Stimuli
) -> Iterator[str]:
    """Compare the keys of one part with what the manifest lists: nothing absent, nothing twice, nothing else."""
    known = {(record.name, layer) for record in records for layer in record.layers}
    for name, layer in sorted(keys.keys() - known):
        yield f"has rows of {name!r}, layer {layer}, which the manifest does not list"
    for record in records:
        selected = np.intersect1d(expected, stimuli.selected(record.where))
        first = None
        for layer in record.layers:
            found = np.concatenate([np.empty((3, 0), np.int64), *keys.get((record.name, layer), [])], axis=1)
            where = f"attention {record.name!r}, layer {layer}: "
            if not np.array_equal(np.unique(found[0]), selected):
                yield where + "its samples are not those that it was asked for"
            if not _whole(found):
                yield where + "its rows are not all heads of each position, in order"
            if first is not None and not np.array_equal(found, first):
                yield where + "its rows are not those of its other layers"
            first = found if first is None else first


def _whole(keys: Keys) -> bool:
    """Whether rows are ascending, with heads 0 to H - 1 for every sample and position."""
    if not keys.shape[1]:
        return True
    heads = int(keys[2].max()) + 1
    if keys.shape[1] % heads or not np.array_equal(keys[2], np.tile(np.arange(heads), keys.shape[1] // heads)):
        return False
    places = keys[:2].reshape(2, -1, heads)
    if not (places == places[:, :, :1]).all():
        return False
    sample, position = places[:, :, 0]
    return bool(((np.diff(sample) > 0) | ((np.diff(sample) == 0) & (np.diff(position) > 0))).all())
