"""Attention weights of chosen queries: the instrument's own, kept in a table, and verified."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ember
import pipelines
from ember.errors import InputError
from pipelines import attention_rows
from pipelines.config import load_config
from pipelines.content import hash_file
from pipelines.errors import ConfigError
from pipelines.export import export_run
from pipelines.manifest import build_manifest, read_manifest, write_manifest
from pipelines.placing import sha256_file
from pipelines.plan import make_plan
from pipelines.plan_report import plan_lines, plan_record
from pipelines.verify import check, verify
from tests.faults.rig import manifest
from tests.foundry.hook_runs import PROMPTS, make

ASKED = [
    {"layers": {"from": 1, "to": 2}, "position": {"from_end": 0}},
    {"name": "all", "layers": [0], "position": "all", "where": {"kind": "clean"}},
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attention")
    return make(folder, "kept", {"capture": [], "attention": ASKED}, generate=None, guard={"positions": 0})


def test_weights_are_those_of_the_instrument(finished: Path) -> None:
    run = pipelines.load(finished, verify=True)
    texts = run.stimuli["prompt"].to_pylist()
    with ember.open("builtin:sarf-nano", threads=1) as model:
        for layer in (1, 2):
            rows = run.attention(layer=layer).to_pylist()
            direct = model.attention(texts, layers=[layer])
            heads = direct[0].shape[1]
            assert len(rows) == heads * len(texts)
            for row, (sample, head) in zip(rows, np.ndindex(len(texts), heads), strict=True):
                assert (row["sample_index"], row["head"], row["capture"]) == (sample, head, "attention")
                prompt = model.tokenizer.encode(texts[sample]).ids
                assert (row["position"], row["token_id"]) == (len(prompt) - 1, prompt[-1])
                np.testing.assert_allclose(row["weights"], direct[sample][0, head], rtol=0, atol=1e-5)
    every = run.attention(layer=0, capture="all").to_pylist()
    assert {row["stimulus_id"] for row in every} == {"b", "d", "f"}
    assert {len(row["weights"]) - row["position"] for row in every} == {1}
    lengths = {row["id"]: row["n_tokens"] for row in run.stimuli.to_pylist()}
    assert len(every) == heads * sum(lengths[name] for name in "bdf")
    for asked, said in (
        ({"layer": 4}, "no kept attention fits layer 4"),
        ({"layer": 1, "capture": "all"}, "'all': layer 0"),
    ):
        with pytest.raises(InputError, match=said):
            run.attention(**asked)


def test_the_plan_and_the_manifest_say_so(finished: Path) -> None:
    told = manifest(finished)["attention"]
    assert told == [
        {"name": "attention", "layers": [1, 2], "position": '{"from_end": 0}', "where": {}},
        {"name": "all", "layers": [0], "position": "all", "where": {"kind": ["clean"]}},
    ]
    plan = plan_record(make_plan(load_config(finished.parent / "kept.yaml")))
    assert (plan["layers_run"], plan["stop_after"], plan["attention"][0]["positions"]) == (3, 2, len(PROMPTS))
    written = sum(path.stat().st_size for path in (finished / "attention").iterdir())
    assert 0 < written < plan["bytes"]["attention"] * 2
    assert any(line.startswith("attention all: layer 0, position all") for line in plan_lines(plan))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"position": "mean"}, "hooks.attention.0: attention is kept of tokens of the prompt"),
        ({"position": "generated"}, "hooks.attention.0: attention is kept of tokens of the prompt"),
        ({"layers": [9]}, r"attention 'attention': layers \[9\] do not exist"),
        ({"position": {"index": 99}}, "6 stimuli without the position that attention 'attention' asks for"),
        ({"where": {"kind": "no"}}, "hooks.attention.0.where: no stimulus fits"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(tmp_path, "refused", {"capture": [], "attention": [asked]})


def test_it_belongs_to_the_run(finished: Path, tmp_path: Path) -> None:
    other = make(tmp_path, "other", {"capture": [], "attention": ASKED[:1]}, generate=None, guard={"positions": 0})
    assert manifest(other)["hooks_sha256"] != manifest(finished)["hooks_sha256"]


def test_exports_hold_it(finished: Path, tmp_path: Path) -> None:
    """[rows, layers, heads, positions], 0 behind each query's own position; CSV gives the same float32 back."""
    run = pipelines.load(finished)
    found = export_run(finished, "npy", tmp_path / "npy")
    heads, longest = 4, max(run.stimuli["n_tokens"].to_pylist())
    assert found.shapes == {}
    last = np.load(tmp_path / "npy/kept_attention_attention.npy")
    assert (last.shape, last.dtype) == ((len(PROMPTS), 2, heads, longest), np.float32)
    assert found.attention["attention"] == last.shape
    for slot, layer in enumerate((1, 2)):
        for row in run.attention(layer=layer).to_pylist():
            weights = last[row["sample_index"], slot, row["head"]]
            assert weights[: row["position"] + 1].tolist() == row["weights"]
            assert not weights[row["position"] + 1 :].any()
    every = np.load(tmp_path / "npy/kept_attention_all.npy")
    rows = read_csv(tmp_path / "npy/kept_attention_all_rows.csv")
    assert every.shape == (len(rows), 1, heads, max(int(row["position"]) for row in rows) + 1)
    told = json.loads((tmp_path / "npy/kept_metadata.json").read_text())["attention"]
    assert told["attention"]["array"]["axes"] == ["stimulus", "layer", "head", "attended position"]
    assert told["all"]["array"]["axes"][0] == "row"
    assert told["all"]["array"]["sha256"] == sha256_file(tmp_path / "npy/kept_attention_all.npy")
    export_run(finished, "csv", tmp_path / "csv", captures=["all"])
    cells = read_csv(tmp_path / "csv/kept_attention_all.csv")
    assert [(row["stimulus_id"], row["position"]) for row in cells[::heads]] == [
        (row["stimulus_id"], row["position"]) for row in rows
    ]
    for i, row in enumerate(cells):
        told_here = [row[f"p{at}"] for at in range(every.shape[3])]
        seen = int(row["position"]) + 1
        assert told_here[seen:] == [""] * (every.shape[3] - seen)
        here = np.array(told_here[:seen], np.float32)
        np.testing.assert_array_equal(here, every[i // heads, 0, int(row["head"]), :seen])


def test_an_array_is_laid_out_piece_by_piece(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = pipelines.load(finished)
    groups = list(attention_rows.read_attention(finished, run.manifest, "all", 0))
    whole = [piece for group in groups for piece in group.pieces(40)]
    assert len(whole) == len(groups)
    monkeypatch.setattr(attention_rows, "CHUNK", 4 * 40 * 2)
    small = [piece for group in groups for piece in group.pieces(40)]
    assert {len(piece) for piece in small} == {1, 2}
    np.testing.assert_array_equal(np.concatenate(small), np.concatenate(whole))


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tampered(run_dir: Path, change: Callable[[pa.Table], pa.Table]) -> list[str]:
    """Change a part, make the manifest agree with it, and return what verification finds."""
    told = read_manifest(run_dir)
    part = told.parts_of("attention")[0]
    path = run_dir / part.path
    with pq.ParquetFile(path) as file:
        groups = [change(file.read_row_group(i)) for i in range(file.num_row_groups)]
    with pq.ParquetWriter(path, groups[0].schema) as writer:
        for group in groups:
            if group.num_rows:
                writer.write_table(group)
    found = replace(
        part,
        bytes=path.stat().st_size,
        sha256=sha256_file(path),
        content_sha256=hash_file(path),
        rows=pq.read_metadata(path).num_rows,
    )
    parts = [found if one == part else one for one in told.parts]
    write_manifest(run_dir, build_manifest(told.inputs, told.origin, samples=told.samples, parts=parts))
    return list(check(run_dir).problems)


def with_column(name: str, change: Callable[[Any], Any]) -> Callable[[pa.Table], pa.Table]:
    def changed(group: pa.Table) -> pa.Table:
        at = group.column_names.index(name)
        column = pa.array(change(group[name].to_pylist()), group.schema.field(name).type)
        return group.set_column(at, group.schema.field(name), column)

    return changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_column("weights", lambda rows: [[2 * w for w in row] for row in rows]), "add up to 1"),
        (with_column("weights", lambda rows: [row[:-1] for row in rows]), "another number of weights"),
        (with_column("token_id", lambda ids: [i + 1 for i in ids]), "a token_id is not the one"),
        (with_column("position", lambda at: [p + 99 for p in at]), "a position is not within its prompt"),
        (with_column("head", lambda heads: [0] * len(heads)), "not all heads of each position"),
        (with_column("layer", lambda layers: [7] * len(layers)), "layer 7, which the manifest does not list"),
        (lambda group: group.slice(1), "not all heads of each position"),
        (lambda group: group.slice(0, 0), "its samples are not those that it was asked for"),
    ],
)
def test_damage_is_found(finished: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table], said: str) -> None:
    shutil.copytree(finished, tmp_path / "run")
    assert verify(tmp_path / "run").sound
    problems = tampered(tmp_path / "run", change)
    assert any(said in problem for problem in problems), problems
