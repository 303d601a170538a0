"""Comparing kept attention: against numbers computed from the rows one by one, and where a change was made."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines import attention_rows
from pipelines.comparison.records import CaptureComparison
from pipelines.comparison.report import comparison_lines
from pipelines.content import hash_file
from pipelines.manifest import build_manifest, read_manifest, write_manifest
from pipelines.placing import sha256_file
from pipelines.report import make_report
from pipelines.reproduce import compare_runs, reproduce
from tests.foundry.hook_runs import PROMPTS, make

KEPT = [
    {"layers": {"from": 1, "to": 4}, "position": "all"},
    {"name": "end", "layers": [0], "where": {"kind": "clean"}},
]
ZERO = {"operation": "zero", "site": "after_layer", "layers": [2], "position": {"index": 2}}
PLAIN: dict[str, Any] = {"generate": None, "guard": {"positions": 0}}
HEADS = 4


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("attention")
    hooks: dict[str, dict[str, Any]] = {"plain": {}, "zeroed": {"intervene": [ZERO]}}
    some = {name: PROMPTS[name] for name in "fbd"}
    made = {
        name: make(folder, name, {"capture": [], "attention": KEPT} | hook, **PLAIN) for name, hook in hooks.items()
    }
    made["some"] = make(folder, "some", {"capture": [], "attention": [KEPT[0] | {"name": "every"}]}, some, **PLAIN)
    made["none"] = make(folder, "none", {}, **PLAIN | {"generate": {"max_tokens": 2}})
    return made


def rows(run_dir: Path, capture: str, layer: int) -> dict[tuple[str, int, int], np.ndarray]:
    found = pipelines.load(run_dir).attention(layer=layer, capture=capture).to_pylist()
    return {(row["stimulus_id"], row["position"], row["head"]): np.array(row["weights"], np.float32) for row in found}


def expected(a: Path, b: Path, capture: str, layer: int) -> dict[str, Any]:
    """What a layer's record must say, computed a row at a time."""
    one, other = rows(a, capture, layer), rows(b, capture, layer)
    far, cosines, same, top = {}, [], 0, 0
    for key, x in one.items():
        x, y = x.astype(np.float64), other[key].astype(np.float64)
        same += np.array_equal(x, y)
        top += x.argmax() == y.argmax()
        far[key] = np.abs(x - y).max() / np.sqrt(np.mean(x**2))
        cosines.append(x @ y / np.sqrt((x @ x) * (y @ y)))
    worst = max(far, key=lambda key: far[key])
    told = {"rows": len(one), "identical": same, "top1_same": top, "max_relative": far[worst]}
    return told | {"worst": worst, "cosine_mean": np.mean(cosines), "cosine_worst": min(cosines)}


def attention(found: pipelines.Comparison) -> dict[str, CaptureComparison]:
    return {one.capture: one for one in found.attention}


@pytest.mark.parametrize("chunk", [2**20, 50])
def test_an_intervention_shows_where_it_reaches(
    runs: dict[str, Path], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_rows, "CHUNK", chunk)
    found = pipelines.compare(runs["plain"], runs["zeroed"])
    kept = attention(found)
    assert (found.attention_only_a, found.attention_only_b, found.identical) == ((), (), False)
    assert kept["end"].identical
    assert kept["end"].layers[0].rows == 3 * HEADS
    every = kept["attention"]
    assert (every.site, every.first_apart, every.unmatched_a, every.unmatched_b) == ("attention", 3, 0, 0)
    for layer in every.layers[2:]:
        told = expected(runs["plain"], runs["zeroed"], "attention", layer.layer)
        assert (layer.rows, layer.identical, layer.top1_same) == (told["rows"], told["identical"], told["top1_same"])
        assert layer.max_relative == pytest.approx(told["max_relative"], rel=1e-9)
        assert layer.cosine_mean == pytest.approx(told["cosine_mean"], rel=1e-9)
        assert layer.cosine_worst == pytest.approx(told["cosine_worst"], rel=1e-9)
        assert layer.worst is not None
        assert (layer.worst.stimulus_id, layer.worst.position, layer.worst.head) == told["worst"]
        assert layer.worst.position >= 2


def test_a_run_is_identical_to_itself(runs: dict[str, Path]) -> None:
    found = pipelines.compare(runs["plain"], runs["plain"])
    assert found.identical
    assert all(layer.identical == layer.rows for one in found.attention for layer in one.layers)
    assert all(layer.top1_same == layer.rows for one in found.attention for layer in one.layers)


def test_what_only_one_run_keeps_is_named(runs: dict[str, Path]) -> None:
    found = pipelines.compare(runs["plain"], runs["none"])
    assert (found.attention, found.attention_only_a, found.attention_only_b) == ((), ("attention", "end"), ())
    assert not found.identical
    assert "kept attention only in A: attention, end" in comparison_lines(found)
    assert pipelines.compare(runs["none"], runs["plain"]).attention_only_b == ("attention", "end")


def test_other_names_and_fewer_stimuli(runs: dict[str, Path]) -> None:
    """What is left on both sides is paired if its position is the same; rows go by stimulus, whatever the order."""
    found = pipelines.compare(runs["some"], runs["plain"])
    (every,) = found.attention
    assert (every.capture, every.capture_b, every.unmatched_a, every.unmatched_b) == ("every", "attention", 0, 0)
    assert (found.attention_only_a, found.attention_only_b) == ((), ("end",))
    sizes = [row["n_tokens"] for row in pipelines.load(runs["some"]).stimuli.to_pylist()]
    for layer in every.layers:
        assert layer.rows == HEADS * sum(sizes)
        assert layer.top1_same == layer.rows
        assert layer.max_relative is not None
        assert layer.max_relative < 1e-4


def tamper(source: Path, target: Path, stimulus: str, change: Any) -> Path:
    """Copy a run, changing the weights of one stimulus's rows in all layers."""
    target.mkdir()
    for path in source.rglob("*"):
        if path.is_file() and ".ember" not in path.parts:
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())
    told = read_manifest(source)
    parts = []
    for part in told.parts:
        path = target / part.path
        if part.table == "attention":
            with pq.ParquetFile(path) as file:
                groups = [_changed(file.read_row_group(i), stimulus, change) for i in range(file.num_row_groups)]
            with pq.ParquetWriter(path, groups[0].schema) as writer:
                for group in groups:
                    writer.write_table(group)
            part = replace(part, bytes=path.stat().st_size, sha256=sha256_file(path), content_sha256=hash_file(path))
        parts.append(part)
    write_manifest(target, build_manifest(told.inputs, told.origin, samples=told.samples, parts=parts))
    return target


def _changed(group: pa.Table, stimulus: str, change: Any) -> pa.Table:
    at = group.column_names.index("weights")
    weights = [
        change(row["weights"]) if row["stimulus_id"] == stimulus else row["weights"] for row in group.to_pylist()
    ]
    return group.set_column(at, group.schema.field(at), pa.array(weights, group.schema.field(at).type))


def test_a_reproduction_that_differs_in_attention_alone_says_so(runs: dict[str, Path], tmp_path: Path) -> None:
    again = tamper(runs["plain"], tmp_path / "again", "c", lambda row: row[::-1])
    found = compare_runs(pipelines.load(runs["plain"]), pipelines.load(again, verify=True))
    assert found.level == "values"
    assert found.first.startswith("capture 'attention', attention, layer 1, ")
    assert "stimulus 'c', position " in found.first
    assert ", head " in found.first


def test_it_is_reproduced_to_the_bit(runs: dict[str, Path], tmp_path: Path) -> None:
    assert reproduce(runs["some"], out=tmp_path / "again", scheduler="serial").level == "nothing"


def test_words_and_json(runs: dict[str, Path]) -> None:
    found = pipelines.compare(runs["plain"], runs["zeroed"])
    lines = comparison_lines(found)
    assert "attention attention: every head, position all" in lines
    told = json.loads(json.dumps(found.record))
    assert [one["first_apart"] for one in told["attention"]] == [3, None]
    assert told["attention"][0]["layers"][3]["worst"]["head"] in range(HEADS)


def test_the_page_of_two_runs_has_a_table_of_it(runs: dict[str, Path]) -> None:
    found = make_report(runs["plain"], runs["zeroed"])
    assert "Attention of both runs, layer by layer" in found.html
    assert found.record["parted"] == {"attention attention": {"first_apart": 3}, "attention end": {"first_apart": None}}
