import json
from pathlib import Path

import pytest

from pipelines.errors import RunError, VerifyError
from pipelines.findings import Finding, read_findings, write_findings
from pipelines.parts import confined

FINDINGS = [
    Finding(4, "s-4", "mine", {"b": [1, 0.1, None, "كتب"], "a": True}),
    Finding(3, "s-3", "mine", []),
    Finding(4, "s-4", "other", 1.5),
]


def test_findings_are_lines_in_the_order_of_samples(tmp_path: Path) -> None:
    part = write_findings(tmp_path, "00002-1", "a0", FINDINGS, sample_start=3, sample_end=6)
    assert (part.path, part.rows, part.sample_start, part.sample_end) == ("experiments/part-00002-1.jsonl", 3, 3, 6)
    path = confined(tmp_path, part)
    assert list(read_findings(path)) == [FINDINGS[1], FINDINGS[0], FINDINGS[2]]
    first = path.read_text(encoding="utf-8").splitlines()[1]
    assert first == (
        '{"experiment":"mine","result":{"a":true,"b":[1,0.1,null,"كتب"]},"sample_index":4,"stimulus_id":"s-4"}'
    )
    assert part.sha256 == part.content_sha256
    assert (part.bytes, not list((tmp_path / ".ember/staging").rglob("*.jsonl"))) == (path.stat().st_size, True)


def test_a_unit_without_findings_has_an_empty_part(tmp_path: Path) -> None:
    part = write_findings(tmp_path, 0, "a0", [], sample_start=0, sample_end=2)
    assert (part.rows, part.bytes) == (0, 0)
    assert list(read_findings(tmp_path / part.path)) == []


def test_the_first_writer_wins_and_must_have_found_the_same(tmp_path: Path) -> None:
    first = write_findings(tmp_path, 0, "a0", FINDINGS, sample_start=0, sample_end=6)
    assert write_findings(tmp_path, 0, "a1", FINDINGS, sample_start=0, sample_end=6) == first
    with pytest.raises(RunError, match="already there with other findings"):
        write_findings(tmp_path, 0, "a2", FINDINGS[:1], sample_start=0, sample_end=6)


@pytest.mark.parametrize("line", ["{", "3", "[]", '{"sample_index": 1}', "[" * 100_000])
def test_lines_that_are_no_findings(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.jsonl"
    good = FINDINGS[0].line()
    path.write_text(f"{good}{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2 is no finding"):
        list(read_findings(path))


@pytest.mark.parametrize(
    "path", ["experiments/part-00000.parquet", "experiments/../x.jsonl", "activations/part-00000.jsonl"]
)
def test_a_part_lies_where_its_table_is(tmp_path: Path, path: str) -> None:
    part = write_findings(tmp_path, 0, "a0", [], sample_start=0, sample_end=2)
    told = json.loads(json.dumps({"path": path, "table": path.split("/")[0]}))
    with pytest.raises(VerifyError, match="no path of a part"):
        confined(tmp_path, type(part)(told["table"], told["path"], 0, 0, "", "", 0, 2))


@pytest.mark.parametrize("result", [float("nan"), {1: 2}, {1, 2}, object()])
def test_what_json_cannot_say_is_no_line(result: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Finding(0, "s", "mine", result).line()


def test_what_is_settled_does_not_change_with_the_experiments_own_objects() -> None:
    own = {"b": [1, 0.1, None, "كتب"], "a": True}
    settled = Finding(4, "s-4", "mine", own).settled()
    own["b"].append(7)  # type: ignore[attr-defined]
    own.clear()
    assert settled == FINDINGS[0]
    assert settled.line() == FINDINGS[0].line()
