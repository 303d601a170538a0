"""From what the engine gave for a unit to rows of tables: every value gets its keys."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ember.work import ALL_STEPS, Floats, Produced
from pipelines.hook_tables import AttentionTable
from pipelines.rows import ABSENT, NOT_SCORED, AttentionRows, CaptureRows, GenerationRow, ScoreRow
from pipelines.stimuli.expect import compare
from pipelines.unit_file import CaptureTable, UnitFile

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer


class _Key(NamedTuple):
    """What a row is the state of."""

    sample: int
    step: int
    position: int
    token: int
    produced: int = ABSENT


def capture_rows(
    units: UnitFile,
    capture: CaptureTable,
    samples: range,
    good: Collection[int],
    values: Floats,
    *,
    produced: Sequence[Produced] = (),
    lost: Collection[int] = (),
    is_special: Callable[[int], bool] = lambda _: False,
) -> CaptureRows:
    """Give the rows of one capture their keys; `good` are the prompts of the unit (from 0) whose values stand.

    `values` is [layers, rows, width] as the engine gave it for the unit `samples`: rows of generated steps without
    those of the prompts in `lost`, which failed there. `is_special` tells control tokens among generated ones.
    """
    if capture.step is None:
        keys = [key for sample in samples for key in _prompt_keys(units, capture, sample)]
    else:
        there = [i for i in range(len(samples)) if i not in lost]
        keys = [key for i in there for key in _step_keys(units, capture, samples[i], produced[i])]
    wanted = {samples[i] for i in good}
    kept = [row for row, key in enumerate(keys) if key.sample in wanted]
    found = [keys[row] for row in kept]
    return CaptureRows(
        name=capture.name,
        site=capture.site,
        layers=capture.layers,
        sample_index=np.array([key.sample for key in found], np.int32),
        stimulus_id=[units.ids[key.sample] for key in found],
        step=np.array([key.step for key in found], np.int32),
        position=np.array([key.position for key in found], np.int32),
        token_id=np.array([key.token for key in found], np.int32),
        produced_id=np.array([key.produced for key in found], np.int32),
        is_special=np.array(
            [key.token in units.special_ids or (key.step >= 0 and is_special(key.token)) for key in found], np.bool_
        ),
        values=values if len(kept) == values.shape[1] else values[:, kept],
    )


def _prompt_keys(units: UnitFile, capture: CaptureTable, sample: int) -> Iterator[_Key]:
    places = capture.of(sample).tolist()
    if capture.pooled:
        places = places and [ABSENT]
    prompt = units.prompt(sample)
    for place in places:
        yield _Key(sample, ABSENT, place, ABSENT if place == ABSENT else int(prompt[place]))


def _step_keys(units: UnitFile, capture: CaptureTable, sample: int, produced: Produced) -> Iterator[_Key]:
    """Step s is fed the new token s at the position behind it, and produces the next."""
    if not capture.on_steps[sample]:
        return
    length, fed = len(units.prompt(sample)), pairwise(produced.token_ids)
    for step, (token, following) in enumerate(fed):
        if capture.step in (ALL_STEPS, step):
            yield _Key(sample, step, length + step, token, following)


def attention_rows(
    units: UnitFile, capture: AttentionTable, samples: range, good: Collection[int], weights: Sequence[Floats]
) -> AttentionRows:
    """Give attention weights their keys; `weights` are the engine's for all prompts of the unit."""
    keys = [(i, at) for i, sample in enumerate(samples) for at in capture.positions[sample]]
    kept = [row for row, (i, _) in enumerate(keys) if i in good]
    found = [(samples[keys[row][0]], keys[row][1]) for row in kept]
    return AttentionRows(
        name=capture.name,
        layers=capture.layers,
        sample_index=np.array([sample for sample, _ in found], np.int32),
        stimulus_id=[units.ids[sample] for sample, _ in found],
        position=np.array([at for _, at in found], np.int32),
        token_id=np.array([units.prompt(sample)[at] for sample, at in found], np.int32),
        weights=[weights[row] for row in kept],
    )


def generation_row(
    units: UnitFile, sample: int, produced: Produced | None, tokenizer: "Tokenizer", score: ScoreRow = NOT_SCORED
) -> GenerationRow:
    """Decode a continuation and compare it with what was expected; what stopped it is no part of the text.

    `produced` is None where nothing was to be generated: there is then nothing to compare.
    """
    ids = list(produced.token_ids) if produced else []
    stopped = produced.stopped if produced else ""
    text = _text(units, ids[:-1] if stopped == "stop" else ids, tokenizer)
    expected, mode = units.expected[sample], units.expect_modes[sample]
    match = compare(expected, text, mode, units.compare_steps) if produced and expected is not None else None  # type: ignore[arg-type]
    return GenerationRow(
        sample_index=sample,
        stimulus_id=units.ids[sample],
        prompt_tokens=len(units.prompt(sample)),
        token_ids=ids,
        text=text,
        stopped=stopped,
        expected=expected,
        expect_mode=mode,
        correct=bool(match and match.correct),
        match_raw=bool(match and match.raw),
        match_trimmed=bool(match and match.trimmed),
        match_nfc_trimmed=bool(match and match.nfc),
        seed=units.choosing.seed if produced and units.choosing.samples else ABSENT,
        score=score,
    )


def _text(units: UnitFile, ids: list[int], tokenizer: "Tokenizer") -> str:
    """The text of new tokens, up to the first stop text in it."""
    if not units.choosing.stop:
        return tokenizer.decode(ids)
    found = tokenizer.decode_bytes(ids)
    ends = [at for at in (found.find(stop.encode()) for stop in units.choosing.stop) if at >= 0]
    return found[: min(ends, default=len(found))].decode(errors="replace")
