"""From what the engine gave for a unit to rows of tables: every value gets its keys."""

from typing import TYPE_CHECKING

import numpy as np

from ember.work import Floats, Produced
from pipelines.rows import ABSENT, NOT_SCORED, CaptureRows, GenerationRow, ScoreRow
from pipelines.stimuli.expect import compare
from pipelines.unit_file import CaptureTable, UnitFile

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer


def capture_rows(units: UnitFile, capture: CaptureTable, start: int, good: list[int], values: Floats) -> CaptureRows:
    """Give the rows of one capture their keys; `good` are the prompts of the unit whose values stand.

    `values` is [layers, rows, width] for all prompts of the unit.
    """
    counts = np.diff(capture.starts)
    ends = np.cumsum([1 if capture.pooled else int(counts[start + i]) for i in range(max(good) + 1)])
    kept = [row for i in good for row in range(ends[i] - (1 if capture.pooled else int(counts[start + i])), ends[i])]
    samples: list[int] = []
    positions: list[int] = []
    tokens: list[int] = []
    for sample in (start + i for i in good):
        places = [-1] if capture.pooled else capture.of(sample).tolist()
        samples += [sample] * len(places)
        positions += places
        prompt = units.prompt(sample)
        tokens += [-1 if place < 0 else int(prompt[place]) for place in places]
    n = len(kept)
    return CaptureRows(
        name=capture.name,
        site=capture.site,
        layers=capture.layers,
        sample_index=np.array(samples, np.int32),
        stimulus_id=[units.ids[sample] for sample in samples],
        step=np.full(n, -1, np.int32),
        position=np.array(positions, np.int32),
        token_id=np.array(tokens, np.int32),
        produced_id=np.full(n, -1, np.int32),
        is_special=np.array([token in units.special_ids for token in tokens], np.bool_),
        values=values if n == values.shape[1] else values[:, kept],
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
