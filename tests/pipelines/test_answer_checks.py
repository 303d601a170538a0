"""What follows from the numbers of a row of `generations` is computed again; any contradiction is named."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines import shards
from pipelines.answer_checks import answer_problems
from pipelines.columns import table_of
from pipelines.rows import ABSENT, GenerationRow, ScoreRow, generation_columns
from pipelines.tables import generations_schema
from pipelines.verify import check
from tests.foundry.fake_run import generation_row, make_run, make_samples

WHOLE = generation_row(make_samples(6)[1])


def problems(row: GenerationRow, normalize: object = None) -> list[str]:
    table = table_of(generation_columns([row]), generations_schema())
    return list(answer_problems(table, None if normalize is None else {"normalize": normalize}))


def scored(**changes: Any) -> GenerationRow:
    return replace(WHOLE, score=replace(WHOLE.score, **changes))


@pytest.mark.parametrize("sample", make_samples(6), ids=lambda sample: sample.stimulus.id)
def test_sound_rows_pass(sample: Any) -> None:
    assert problems(generation_row(sample)) == []
    assert problems(replace(generation_row(sample), score=ScoreRow())) == []


SUM = "expected_log_probability is not the sum"
WHOLENESS = "its expected_* columns disagree"
CHOICE = "choice, choice_per_* or choice_correct"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"expected_log_probability": WHOLE.score.expected_log_probability - 1e-12}, SUM),
        ({"expected_log_probabilities": (-0.25, -0.5)}, WHOLENESS),
        ({"expected_rank": 2}, WHOLENESS),
        ({"expected_ranks": (4, 0, 2)}, WHOLENESS),
        ({"expected_bytes": 8}, WHOLENESS),
        ({"expected_characters": 9}, WHOLENESS),
        ({"expected_tokens": ABSENT}, WHOLENESS),
        (
            {
                "expected_tokens": 0, "expected_token_ids": (), "expected_log_probabilities": (), "expected_ranks": (),
            },
            WHOLENESS,
        ),
        ({"choice": 1}, CHOICE),
        ({"choice": ABSENT}, CHOICE),
        ({"choice_per_token": 0}, CHOICE),
        ({"choice_per_byte": 1 - WHOLE.score.choice_per_byte}, CHOICE),
        ({"choice_correct": False}, CHOICE),
        ({"choices": (" مكتوب", " كاتب")}, CHOICE),
        ({"choice_merged": (True,)}, "its choices, their log-probabilities and tokens differ in number"),
        ({"choice_tokens": (3, 0)}, "its choices, their log-probabilities and tokens differ in number"),
        ({"choice_log_probabilities": (0.5, -4.0)}, "a log-probability is above 0"),
        ({"choice_log_probabilities": (math.nan, -4.0)}, "a log-probability is above 0"),
        ({"top_ids": (3, 9)}, "top_ids are not distinct"),
        ({"top_ids": (3, 3, 4)}, "top_ids are not distinct"),
        ({"top_log_probabilities": (-1.5, -0.5, -2.5)}, "top_ids are not distinct"),
        ({"top_log_probabilities": (-0.1, -0.2, -0.3)}, "top_ids are not distinct"),
    ],
)  # fmt: skip
def test_a_contradiction_is_named(changes: dict[str, Any], says: str) -> None:
    found = problems(scored(**changes))
    assert any(says in problem and problem.startswith("sample 1: ") for problem in found)


def test_comparisons_are_made_again() -> None:
    row = GenerationRow(0, "s", 3, [4], " كَتَب", "length", "كتب", "exact", True)
    wrong = "sample 0: correct or a match is not what comparing its two texts gives"
    assert problems(row) == [wrong]
    assert problems(row, ["trim", "strip_diacritics"]) == []
    assert problems(row, ["trim", "strip_tatweel"]) == [wrong]
    assert problems(replace(row, correct=False)) == []
    assert problems(replace(row, expected=None)) == [wrong]
    assert problems(replace(row, correct=False, text=" كتب")) == [wrong]


@pytest.mark.parametrize("junk", [7, "nfc", [1, None, {}], {}])
def test_junk_in_the_manifest_is_no_crash(junk: object) -> None:
    assert problems(WHOLE, junk) == []


def test_verification_reports_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", units=(4, 3))
    rows = [generation_row(sample) for sample in run.samples[:4]]
    rows[1] = replace(rows[1], score=replace(rows[1].score, choice=1))
    rows[2] = replace(rows[2], expected=" كاتبة")
    name = "generations/part-00000.parquet"
    (run.directory / name).unlink()
    written = shards.write_generations(run.directory, 0, "again", rows, sample_start=0, sample_end=4, metadata={})
    run.parts = [written if part.path == name else part for part in run.parts]
    run.finish()
    found = check(run.directory).problems
    assert f"{name}: an expected text is not the one that stimuli.parquet gives to its sample" in found
    assert any(problem.startswith(f"{name}: sample 1: choice, choice_per_*") for problem in found)
