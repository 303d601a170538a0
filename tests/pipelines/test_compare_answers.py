"""Answers, failures and parts of two runs: whatever is stored counts, whether or not anything else tells it."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines import shards
from pipelines.comparison.records import AnswersComparison, ColumnComparison
from pipelines.comparison.report import comparison_lines
from pipelines.reading import load
from pipelines.report import make_report
from pipelines.reproduce import compare_runs
from pipelines.rows import SCORE_COLUMNS, CaptureRows, GenerationRow, ScoreRow
from tests.foundry.fake_pairs import altered, shuffled
from tests.foundry.fake_run import FakeRun, make_run, part_metadata, write_unit


@pytest.fixture(scope="module")
def a(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    return make_run(tmp_path_factory.mktemp("answers") / "a", units=(4, 3, 6))


def test_every_column_of_answers_is_compared(a: FakeRun, tmp_path: Path) -> None:
    def say(row: GenerationRow) -> GenerationRow:
        other: dict[int, dict[str, Any]] = {
            3: {"top_log_probabilities": (-0.5, -1.5, -2.75)}, 4: {"top_ids": (3, 9, 5)}
        }  # fmt: skip
        row = replace(row, score=replace(row.score, **other.get(row.sample_index, {})))
        return replace(row, seed=7) if row.sample_index == 5 else row

    found = pipelines.compare(a.directory, altered(tmp_path / "b", say=say).directory)
    apart = [("seed", "s-005", None), ("top_ids", "s-004", None), ("top_log_probabilities", "s-003", 0.25)]
    columns = tuple(ColumnComparison(name, 1, first, far) for name, first, far in apart)
    assert found.answers == AnswersComparison(13, 10, 0, 0, columns)
    assert all(one.same == one.compared for one in (*found.agreements, *found.scores))
    assert not found.identical
    told = "\n".join(comparison_lines(found))
    assert "10 of 13 rows are the same in every column" in told
    assert "top_log_probabilities: 1 apart, the first s-003, largest |B - A| 0.25" in told


def test_a_score_that_one_run_alone_has_is_a_difference(a: FakeRun, tmp_path: Path) -> None:
    bare = ScoreRow()
    unscored = {name: getattr(bare, name) for name in SCORE_COLUMNS if name.startswith(("expected", "merged"))}

    def say(row: GenerationRow) -> GenerationRow:
        return replace(row, score=replace(row.score, **unscored)) if row.sample_index == 1 else row

    found = pipelines.compare(a.directory, altered(tmp_path / "b", say=say).directory)
    expected = found.scores[0]
    assert (expected.compared, expected.same, expected.one_sided) == (7, 7, 1)
    assert found.answers is not None
    column = next(one for one in found.answers.columns if one.column == "expected_log_probability")
    assert (column.apart, column.first, column.max_difference) == (1, "s-001", None)
    assert not found.identical


def test_answers_that_one_run_alone_has_are_a_difference(a: FakeRun, tmp_path: Path) -> None:
    b = altered(tmp_path / "b")
    assert pipelines.compare(a.directory, b.directory).identical
    shutil.rmtree(b.directory / "generations")
    b.parts = [part for part in b.parts if part.table != "generations"]
    b.finish()
    for one, other, only in ((a, b, (13, 0)), (b, a, (0, 13))):
        found = pipelines.compare(one.directory, other.directory)
        assert found.answers == AnswersComparison(0, 0, *only, ())
        assert not found.identical
        told = "\n".join(comparison_lines(found))
        assert f"13 of common stimuli only in {'A' if only[0] else 'B'}" in told
        assert "answers     none in both" in told


def test_what_one_run_alone_asked_for_is_said(tmp_path: Path) -> None:
    """Both have a row of answers for each stimulus; A's config asks for scores, B's for continuations."""
    one, other = (make_run(tmp_path / name, units=(1,)) for name in "ab")
    for run, told in ((one, {"scoring": {"continuations": 1}}), (other, {"generation": {"max_tokens": 2}})):
        run.origin = replace(run.origin, **({"scoring": None, "generation": None} | told))
        run.finish()
    found = pipelines.compare(one.directory, other.directory)
    assert found.alone == ("only B has continuations", "only A has scores")
    line = "answers     only B has continuations; only A has scores; 1 of 1 rows are the same in every column"
    assert line in comparison_lines(found)
    page = make_report(one.directory, other.directory).html
    assert "Only B has continuations. Only A has scores. 1 of 1 answers" in page
    assert pipelines.compare(one.directory, one.directory).alone == ()


def test_failures_are_compared_by_id_not_by_number(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{sample}", failed=(sample,)) for sample in (2, 5)]
    found = pipelines.compare(*(run.directory for run in runs))
    assert found.a.failed == found.b.failed == 1
    assert (found.stimuli.first_failed_only_a, found.stimuli.first_failed_only_b) == (("s-002",), ("s-005",))
    assert "failed      only in A, 1: s-002" in comparison_lines(found)
    # also where nothing but stimuli is there to be compared
    assert not replace(found, captures=(), answers=None).identical
    assert compare_runs(*(load(run.directory, partial=True) for run in runs)).level == "values"


@pytest.mark.parametrize(("shift", "level"), [(1e-9, "bits"), (0.01, "values"), (-math.inf, "values")])
def test_a_reproduction_whose_likeliest_tokens_alone_are_the_same(
    a: FakeRun, tmp_path: Path, shift: float, level: str
) -> None:
    def say(row: GenerationRow) -> GenerationRow:
        return replace(row, score=replace(row.score, top_log_probabilities=(-0.5, -1.5, -2.5 - abs(shift))))

    found = compare_runs(load(a.directory), load(altered(tmp_path / "b", say=say).directory))
    assert (found.level, found.exit_status) == (level, 1)
    assert found.first.startswith("top_log_probabilities of 13 stimuli, 's-000' the first")


def test_a_reproduction_that_differs_where_nothing_is_compared(a: FakeRun, tmp_path: Path) -> None:
    def alter(rows: CaptureRows) -> CaptureRows:
        return replace(rows, is_special=~rows.is_special) if rows.name == "last" and 8 in rows.sample_index else rows

    found = compare_runs(load(a.directory), load(altered(tmp_path / "b", alter).directory))
    assert (found.level, found.exit_status) == ("values", 1)
    assert found.first.startswith("activations/part-00002.parquet does not hold the same")


def test_a_reproduction_under_another_hash_that_holds_the_same(a: FakeRun, tmp_path: Path) -> None:
    b = make_run(tmp_path / "b")
    shutil.rmtree(b.directory)
    b.inputs = replace(b.inputs, config_sha256="d" * 64)
    b.parts = [shards.write_stimuli(b.directory, b.samples, attempt="plan", metadata=part_metadata(b.inputs))]
    b.parts += [part for unit in range(3) for part in write_unit(b, unit, "b")]
    b.finish()
    found = compare_runs(load(a.directory), load(b.directory))
    assert found.semantic_hash != found.semantic_hash_now
    assert (found.level, found.first, found.exit_status) == ("nothing", "", 0)
    cut = compare_runs(load(a.directory), load(shuffled(tmp_path / "c", range(13), (7, 6)).directory))
    assert (cut.level, cut.first.split(" ")[0]) == ("bits", "activations/part-00000.parquet")
