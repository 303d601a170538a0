"""Comparing two runs: nothing where there is nothing, and hand-made differences where they were made."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pipelines
from ember.errors import InputError
from pipelines import shards
from pipelines.cli.main import pipeline
from pipelines.comparison.matching import Rows, match_rows
from pipelines.comparison.records import CaptureComparison
from pipelines.comparison.report import comparison_lines
from pipelines.errors import RunError, VerifyError
from pipelines.findings import Finding, write_findings
from pipelines.manifest import stimuli_sha256
from pipelines.report import make_report
from pipelines.rows import CaptureRows, GenerationRow, ScoreRow
from tests.foundry.fake_pairs import altered, shuffled
from tests.foundry.fake_run import CAPTURES, FakeRun, make_run, make_samples, part_metadata, write_unit


@pytest.fixture(scope="module")
def a(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    return make_run(tmp_path_factory.mktemp("compare") / "a", units=(4, 3, 6))


def by_name(found: pipelines.Comparison) -> dict[str, CaptureComparison]:
    return {capture.capture: capture for capture in found.captures}


# --- the same ---------------------------------------------------------------------------------------------------------


def test_a_run_is_identical_to_itself_everywhere(a: FakeRun) -> None:
    found = pipelines.compare(a.directory, a.directory)
    assert found.identical
    assert not any(found.differences.values())
    assert (found.stimuli.common, found.stimuli.only_a, found.stimuli.only_b) == (13, 0, 0)
    assert [capture.capture for capture in found.captures] == [record.name for record in CAPTURES]
    for capture, record in zip(found.captures, CAPTURES, strict=True):
        assert capture.identical
        assert capture.first_apart is None
        assert tuple(layer.layer for layer in capture.layers) == record.layers
        for layer in capture.layers:
            rows = len(a.owner[record.name])
            assert (layer.rows, layer.identical) == (rows, rows)
            assert (layer.max_relative, layer.cosine_mean, layer.cosine_worst, layer.worst) == (0.0, 1.0, 1.0, None)
    assert by_name(found)["scores"].layers[0].top1_same == 13
    texts = found.generations
    assert texts is not None
    assert (texts.compared, texts.same_tokens, texts.same_texts, texts.same_first_token) == (13, 13, 13, 13)
    assert texts.first_step is None


@given(
    order=st.permutations(range(13)),
    cuts=st.lists(st.integers(1, 12), max_size=4, unique=True).map(sorted),
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_neither_order_nor_units_matter(
    a: FakeRun, tmp_path_factory: pytest.TempPathFactory, order: list[int], cuts: list[int]
) -> None:
    units = np.diff([0, *cuts, 13]).tolist()
    b = shuffled(tmp_path_factory.mktemp("shuffled") / "b", order, units)
    found = pipelines.compare(a.directory, b.directory)
    assert found.identical
    assert found.generations is not None
    assert found.generations.compared == 13
    assert all(layer.rows == len(a.owner[capture.capture]) for capture in found.captures for layer in capture.layers)


# --- differences ------------------------------------------------------------------------------------------------------


def test_one_number_that_differs_is_found_with_its_size_and_place(a: FakeRun, tmp_path: Path) -> None:
    def alter(rows: CaptureRows) -> CaptureRows:
        if rows.name == "every" and 8 in rows.sample_index:
            at = int(np.flatnonzero((rows.sample_index == 8) & (rows.position == 2))[0])
            rows.values[1, at, 5] += 3  # its second layer, which is layer 2
        return rows

    found = pipelines.compare(a.directory, altered(tmp_path / "b", alter).directory)
    assert not found.identical
    assert [name for name, capture in by_name(found).items() if not capture.identical] == ["every"]
    capture = by_name(found)["every"]
    assert capture.first_apart == 2
    first, second = capture.layers
    rows = len(a.owner["every"])
    assert (first.identical, second.identical) == (rows, rows - 1)
    assert second.worst is not None
    assert (second.worst.stimulus_id, second.worst.step, second.worst.position) == ("s-008", -1, 2)
    one = a.values["every", 2][np.flatnonzero(a.owner["every"] == 8)[2]].astype(np.float64)
    other = one + 3 * (np.arange(12) == 5)
    cosine = float(one @ other / math.sqrt((one @ one) * (other @ other)))
    assert second.max_relative == pytest.approx(3 / math.sqrt(float((one**2).mean())), rel=1e-6)
    assert second.cosine_worst == pytest.approx(cosine, rel=1e-6)
    assert second.cosine_mean == pytest.approx((rows - 1 + cosine) / rows, rel=1e-6)


@given(
    layer=st.integers(0, 3), sample=st.integers(0, 12), factor=st.sampled_from([-1.0, 0.0, 0.5, 1.0001, 2.0]),
    later=st.booleans(),
)  # fmt: skip
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_first_layer_apart_is_the_first_that_was_changed(
    a: FakeRun, tmp_path_factory: pytest.TempPathFactory, layer: int, sample: int, factor: float, later: bool
) -> None:
    def alter(rows: CaptureRows) -> CaptureRows:
        if rows.name == "last":
            rows.values[layer : None if later else layer + 1, rows.sample_index == sample] *= np.float32(factor)
        return rows

    b = altered(tmp_path_factory.mktemp("changed") / "b", alter)
    capture = by_name(pipelines.compare(a.directory, b.directory))["last"]
    assert capture.first_apart == layer
    changed = [one.layer for one in capture.layers if one.identical == 12]
    assert changed == (list(range(layer, 4)) if later else [layer])
    told = capture.layers[layer]
    assert told.worst is not None
    assert told.worst.stimulus_id == f"s-{sample:03d}"
    row = a.values["last", layer][sample].astype(np.float64)
    assert told.max_relative == pytest.approx(abs(factor - 1) * np.abs(row).max() / np.sqrt((row**2).mean()), rel=1e-3)
    assert told.cosine_worst == pytest.approx(np.sign(factor), abs=1e-6)


def test_zeros_and_values_that_are_not_finite_have_a_place(a: FakeRun, tmp_path: Path) -> None:
    def zero(rows: CaptureRows) -> CaptureRows:
        rows.values[:, rows.sample_index == 0] = 0.0
        return rows

    def others(rows: CaptureRows) -> CaptureRows:
        zero(rows)
        rows.values[:, rows.sample_index == 0] = -0.0
        rows.values[0, rows.sample_index == 1] = np.nan
        rows.values[0, rows.sample_index == 2] = np.inf
        return rows

    b, c = altered(tmp_path / "b", zero), altered(tmp_path / "c", others)
    from_zero = by_name(pipelines.compare(b.directory, a.directory))["last"].layers[0]
    row = a.values["last", 0][0].astype(np.float64)
    assert from_zero.max_relative == pytest.approx(np.abs(row).max() / np.sqrt((row**2).mean()), rel=1e-6)
    assert from_zero.cosine_worst == 0.0
    found = by_name(pipelines.compare(b.directory, c.directory))["last"].layers[0]
    assert (found.rows, found.identical, found.not_finite) == (13, 10, 2)
    assert (found.max_relative, found.cosine_mean, found.cosine_worst) == (0.0, 1.0, 1.0)
    json.dumps(pipelines.compare(b.directory, c.directory).record, allow_nan=False)
    assert "2 at layer 0" in "\n".join(comparison_lines(pipelines.compare(b.directory, c.directory)))


def test_the_likeliest_token_of_logits_is_compared(a: FakeRun, tmp_path: Path) -> None:
    def alter(rows: CaptureRows) -> CaptureRows:
        if rows.name == "scores":
            rows.values[0, rows.sample_index == 3, 30] = 100.0
            rows.values[0, rows.sample_index == 4] *= np.float32(1.5)
        return rows

    found = by_name(pipelines.compare(a.directory, altered(tmp_path / "b", alter).directory))["scores"].layers[0]
    assert (found.rows, found.identical, found.top1_same) == (13, 11, 12)


def test_tokens_and_texts_part_at_their_first_step(a: FakeRun, tmp_path: Path) -> None:
    def say(row: GenerationRow) -> GenerationRow:
        if row.sample_index == 5:  # two tokens, of which the second changes
            return replace(row, token_ids=[row.token_ids[0], 30], text=" كِتَاب", correct=False)
        if row.sample_index == 8:  # one more
            return replace(row, token_ids=[*row.token_ids, 1])
        return row

    found = pipelines.compare(a.directory, altered(tmp_path / "b", say=say).directory).generations
    assert found is not None
    assert (found.compared, found.same_tokens, found.same_texts, found.same_first_token) == (13, 11, 12, 13)
    assert found.first_step == 1
    assert [(p.stimulus_id, p.step) for p in found.partings] == [("s-005", 1), ("s-008", 2)]
    assert found.partings[0].text_b == " كِتَاب"
    assert found.expected == 8
    assert found.correct_a - found.correct_b == 1


def test_scores_choices_and_likeliest_tokens(a: FakeRun, tmp_path: Path) -> None:
    def score(row: GenerationRow, shift: float) -> GenerationRow:
        i = row.sample_index
        told = {"choices": ["x", "y"], "choice_log_probabilities": [-1.0, -2.0 + shift], "choice": int(shift > 1)}
        told |= {"choice_tokens": [1, 1], "choice_merged": [False, False], "choice_per_token": told["choice"]}
        told |= {"choice_per_byte": told["choice"]}
        likeliest = {"top_ids": [i, i + 1], "top_log_probabilities": [-0.5, -1.0 - shift]}
        known = -3.0 - i / 8 + shift
        expected = {
            "expected_log_probability": known, "expected_tokens": 1, "expected_bytes": 9, "expected_characters": 5,
            "expected_rank": 1, "expected_token_ids": [3], "expected_log_probabilities": [known], "expected_ranks": [1],
        }  # fmt: skip
        has = expected if row.expected is not None else {}
        return replace(row, score=ScoreRow(**has, **(told if i < 5 else {}), **likeliest))

    one = altered(tmp_path / "a", say=lambda row: score(row, 0.0))
    other = altered(tmp_path / "b", say=lambda row: score(row, {1: 0.25, 4: 1.5}.get(row.sample_index, 0.0)))
    found = pipelines.compare(one.directory, other.directory)
    token, choice = found.agreements
    assert (token.what, token.compared, token.same) == ("next token", 13, 13)
    assert (choice.compared, choice.same, choice.first_apart) == (5, 4, ("s-004",))
    expected, choices = found.scores
    assert (expected.compared, expected.same, expected.worst) == (8, 6, "s-004")
    assert (expected.max_difference, expected.mean_difference) == (1.5, (0.25 + 1.5) / 8)
    assert (choices.compared, choices.same, choices.mean_difference) == (10, 8, pytest.approx(0.175))
    assert not found.identical
    assert "not for s-004" in "\n".join(comparison_lines(found))
    assert pipelines.compare(one.directory, one.directory).identical


def test_stimuli_and_captures_that_only_one_has(a: FakeRun, tmp_path: Path) -> None:
    fewer = (replace(CAPTURES[0], layers=(1, 2, 3)), replace(CAPTURES[1], name="all tokens"), CAPTURES[3])
    b = make_run(tmp_path / "b", units=(4, 6), captures=fewer, failed=(2,))
    found = pipelines.compare(a.directory, b.directory)
    assert (found.stimuli.common, found.stimuli.only_a, found.stimuli.first_only_a) == (
        10,
        3,
        ("s-010", "s-011", "s-012"),
    )
    assert (found.only_a, found.only_b) == (("word", "scores"), ())
    captures = by_name(found)
    assert captures["every"].capture_b == "all tokens"
    assert captures["last"].only_a == (0,)
    assert [layer.layer for layer in captures["last"].layers] == [1, 2, 3]
    assert captures["last"].layers[0].rows == 9
    assert captures["last"].unmatched_a == 1  # the sample that failed in B
    assert found.answers is not None
    assert (found.answers.compared, found.answers.only_a, found.answers.only_b) == (9, 1, 0)
    assert found.stimuli.first_failed_only_b == ("s-002",)
    assert not found.identical
    text = "\n".join(comparison_lines(found))
    for line in ("only in A   3: s-010, s-011, s-012", "captures only in A: word, scores", "layers only in A: 0"):
        assert line in text
    back = pipelines.compare(b.directory, a.directory)
    assert (back.only_b, back.stimuli.only_b) == (("word", "scores"), 3)


def test_findings_of_experiments(a: FakeRun, tmp_path: Path) -> None:
    def told(name: str, units: Sequence[int], found: dict[int, list[float]]) -> Path:
        run = make_run(tmp_path / name, units=units)
        for unit, (start, end) in enumerate(run.units):
            here = [
                Finding(i, f"s-{i:03d}", f"x{k}", {"norm": value})
                for i, values in found.items() if start <= i < end
                for k, value in enumerate(values)
            ]  # fmt: skip
            run.parts.append(write_findings(run.directory, unit, "a", here, sample_start=start, sample_end=end))
        run.origin = replace(run.origin, hooks={"experiments": [{"name": "x0"}, {"name": "x1"}]})
        run.finish()
        return run.directory

    one = told("one", (4, 3, 6), {0: [1.0, 2.0], 3: [3.0], 4: [4.0], 12: [5.0]})
    other = told("other", (6, 7), {0: [1.0, 2.0], 3: [3.5], 5: [4.0], 12: [5.0]})
    found = pipelines.compare(one, other)
    assert found.findings is not None
    assert (found.findings.compared, found.findings.same) == (5, 2)
    assert found.findings.first_apart == ("s-003", "s-004", "s-005")
    assert not found.identical
    assert "the same for 2 of 5; not for s-003, s-004, s-005" in "\n".join(comparison_lines(found))
    again = pipelines.compare(one, one)
    assert again.identical
    assert again.findings is not None
    assert again.findings.same == 4
    assert pipelines.compare(a.directory, a.directory).findings is None


def test_runs_without_a_common_stimulus(a: FakeRun, tmp_path: Path) -> None:
    b = make_run(tmp_path / "b", units=(3,))
    b.samples = [replace(s, stimulus=replace(s.stimulus, id=f"other-{s.sample_index}")) for s in b.samples]
    shutil.rmtree(b.directory)
    b.inputs = replace(b.inputs, stimuli_sha256=stimuli_sha256(s.stimulus for s in b.samples))
    b.parts = [shards.write_stimuli(b.directory, b.samples, attempt="plan", metadata=part_metadata(b.inputs))]
    b.parts += write_unit(b, 0, "b")
    b.finish()
    for one, other in ((a, b), (b, a)):
        found = pipelines.compare(one.directory, other.directory)
        assert (found.stimuli.common, found.generations, found.scores) == (0, None, ())
        assert all(layer.rows == 0 for capture in found.captures for layer in capture.layers)
        assert not found.identical
        assert not found.comparable
        assert not found.record["comparable"]
        ids = [f"(A has {x!r}, for example, and B {y!r})" for x, y in (("s-000", "other-0"), ("other-0", "s-000"))]
        lines = comparison_lines(found)
        said = "nothing could be compared: stimuli are matched by id, and no id is in both runs"
        assert lines[3] == f"{said} {ids[one is b]}"
        told = "\n".join(lines)
        assert "0 stimuli" in told
        assert not any(word in told for word in ("they differ", "max|d|", "no row is in both", "the same bits"))
        page = make_report(one.directory, other.directory)
        assert next(iter(page.record)) == "differences"
        assert page.record["differences"] == {"identical": False, "comparable": False}
        assert "No state, answer or score could be compared" in page.html
        assert "The two runs differ." not in page.html
        assert page.figures == {}
        assert "parted" not in page.record


def test_other_prompts_are_compared_by_place_and_told(a: FakeRun, tmp_path: Path) -> None:
    """A prompt that lost a token: its last row is compared with the last, its others from the first on."""
    b = make_run(tmp_path / "b", units=(4, 3, 6))
    shutil.rmtree(b.directory)
    samples = make_samples(13)
    short = samples[2]
    samples[2] = replace(
        short, tokens=short.tokens[:-1], byte_offsets=short.byte_offsets[:-1],
        stimulus=replace(short.stimulus, prompt="كتب ٢"), span_tokens=(0, 1),
    )  # fmt: skip
    b.samples = samples
    b.inputs = replace(b.inputs, stimuli_sha256=stimuli_sha256(s.stimulus for s in samples))
    b.parts = [shards.write_stimuli(b.directory, samples, attempt="plan", metadata=part_metadata(b.inputs))]
    for unit in range(3):
        b.parts += write_unit(b, unit, "b")
    b.finish()
    found = pipelines.compare(a.directory, b.directory)
    assert (found.stimuli.other_prompt, found.stimuli.other_tokens) == (1, 1)
    captures = by_name(found)
    assert (captures["last"].unmatched_a, captures["last"].layers[0].rows) == (0, 13)
    assert (captures["every"].unmatched_a, captures["every"].unmatched_b) == (1, 0)
    assert found.differences["stimuli"]


def test_what_made_the_runs_is_named(a: FakeRun, tmp_path: Path) -> None:
    b = make_run(tmp_path / "b", units=(4, 3, 6))
    b.origin = replace(b.origin, model=b.origin.model | {"n_layers": 5}, numerics={"route": "fast"})
    b.finish()
    found = pipelines.compare(a.directory, b.directory)
    assert found.differences["model"] == ("model.n_layers: was 4, is 5",)
    assert found.differences["numerics"] == ('numerics.route: was "reference", is "fast"',)
    assert not found.differences["hooks"]
    assert len(found.notes) == 2  # made without configs
    assert found.identical  # in everything that was computed


# --- matching ---------------------------------------------------------------------------------------------------------


keys = st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 3), st.integers(-1, 2**31 - 1)), max_size=20, unique=True)


@given(one=keys, other=keys)
def test_rows_are_matched_by_stimulus_step_and_position(
    one: list[tuple[int, ...]], other: list[tuple[int, ...]]
) -> None:
    a, b = (Rows(*np.array(sorted(side), np.int64).reshape(-1, 3).T) for side in (one, other))
    found = match_rows(a, b, by_rank=False)
    there = sorted(other)
    wanted = [there.index(key) if key in there and key[0] >= 0 else -1 for key in sorted(one)]
    assert found.tolist() == wanted


# --- refusals and the command -----------------------------------------------------------------------------------------


def test_a_damaged_or_unfinished_run_is_refused(a: FakeRun, tmp_path: Path) -> None:
    b = make_run(tmp_path / "b", units=(4, 3, 6))
    part = b.directory / "activations/part-00001.parquet"
    data = bytearray(part.read_bytes())
    data[100] ^= 1
    part.write_bytes(data)
    with pytest.raises(VerifyError, match=r"activations/part-00001\.parquet: its sha256"):
        pipelines.compare(a.directory, b.directory)
    (b.directory / "manifest.json").unlink()
    with pytest.raises(RunError, match="no finished run"):
        pipelines.compare(b.directory, a.directory)
    with pytest.raises(InputError, match="not a directory"):
        pipelines.compare(a.directory, tmp_path / "absent")


def test_the_command_for_people_and_for_machines(a: FakeRun, tmp_path: Path) -> None:
    b = altered(tmp_path / "b", say=lambda row: replace(row, text=row.text + "ـ"))
    words = CliRunner().invoke(pipeline, ["compare", str(a.directory), str(b.directory)])
    assert words.exit_code == 0
    assert words.output.rstrip().endswith("they differ")
    assert "13 stimuli, matched by id" in words.output
    told = CliRunner().invoke(pipeline, ["compare", str(a.directory), str(b.directory), "--json"])
    assert told.exit_code == 0
    record = json.loads(told.output)
    assert record["identical"] is False
    assert record["captures"][0]["first_apart"] is None
    assert record["generations"]["same_texts"] == 0
    shown = CliRunner().invoke(pipeline, ["compare", "--help"])
    assert "also when" in " ".join(shown.output.split())
