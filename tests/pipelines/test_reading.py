"""Reading a run back, with `pipelines.load` and with readers that know nothing of Ember."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import pipelines
from ember.errors import InputError
from pipelines import shards, tables
from pipelines.errors import RunError, VerifyError
from pipelines.manifest import CaptureRecord
from pipelines.reading import Run, load
from pipelines.rows import CaptureRows
from tests.foundry.fake_run import CAPTURES, FakeRun, capture_rows, make_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    return make_run(tmp_path_factory.mktemp("read") / "run", units=(4, 3, 6))


@pytest.fixture(scope="module")
def run(made: FakeRun) -> Run:
    return load(made.directory)


def test_a_notebook_shows_a_run_in_one_line(made: FakeRun, run: Run, tmp_path: Path) -> None:
    told = "captures last, every, word, final, scores; model"
    name = run.manifest.origin.model.get("name") or "without a name"
    assert repr(run) == f"<pipelines.Run {made.directory}: 13 stimuli; {told} {name}>"
    make_run(tmp_path / "lost", units=(2, 1), failed=(0,))
    assert ": 3 stimuli (1 failed); captures" in repr(load(tmp_path / "lost", partial=True))
    bare = replace(run.manifest, origin=replace(run.manifest.origin, captures=(), model={"name": "smol"}))
    assert repr(Run(Path("a"), bare)) == "<pipelines.Run a: 13 stimuli; captures none; model smol>"


# --- matrices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", CAPTURES, ids=lambda record: record.name)
def test_matrix_is_what_was_written(made: FakeRun, run: Run, record: CaptureRecord) -> None:
    for layer in record.layers:
        found = run.matrix(site=record.site, layer=layer if layer >= 0 else None, capture=record.name)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        assert found.flags.owndata
        assert np.array_equal(found, made.matrix(record.name, layer))


def test_matrix_is_aligned_with_the_stimuli(made: FakeRun, run: Run) -> None:
    stimuli = run.stimuli
    rows = run.rows(site="after_layer", layer=2, capture="last")
    assert isinstance(stimuli, pa.Table)
    assert rows["stimulus_id"].to_pylist() == stimuli["id"].to_pylist() == [s.stimulus.id for s in made.samples]
    assert stimuli["sample_index"].to_pylist() == list(range(13))


def test_rows_of_a_capture_of_several_positions(made: FakeRun, run: Run) -> None:
    rows = run.rows(site="after_layer", layer=1, capture="every")
    assert rows.column_names == [
        "sample_index", "stimulus_id", "site", "layer", "capture",
        "step", "position", "token_id", "produced_id", "is_special",
    ]  # fmt: skip
    wanted = [(s.sample_index, p, int(t)) for s in made.samples for p, t in enumerate(s.tokens)]
    found = zip(*(rows[name].to_pylist() for name in ("sample_index", "position", "token_id")), strict=True)
    assert list(found) == wanted
    assert len(rows) == len(run.matrix(site="after_layer", layer=1, capture="every"))


def test_negative_layers_count_from_the_last(run: Run) -> None:
    assert np.array_equal(
        run.matrix(site="after_layer", layer=-1, capture="last"), run.matrix(site="after_layer", layer=3)
    )
    assert np.array_equal(run.matrix(site="before_logits"), run.matrix(site="before_logits", layer=-1))


def test_float16_is_read_as_float32(tmp_path: Path) -> None:
    made = make_run(tmp_path, units=(3, 2), dtype="float16")
    found = load(tmp_path).matrix(site="after_layer", layer=0)
    assert found.dtype == np.float32
    assert np.array_equal(found, made.matrix("last", 0).astype(np.float16).astype(np.float32))


def test_row_groups_that_were_cut_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "GROUP_BYTES", 200)
    made = make_run(tmp_path, units=(7, 4))
    assert pq.read_metadata(tmp_path / "activations/part-00000.parquet").num_row_groups > 20
    found = load(tmp_path, verify=True)
    for record in CAPTURES:
        layer = record.layers[-1]
        matrix = found.matrix(site=record.site, layer=layer, capture=record.name)
        assert np.array_equal(matrix, made.matrix(record.name, layer))


def test_steps_are_told_apart(tmp_path: Path) -> None:
    made = make_run(tmp_path, units=(3,), captures=CAPTURES[:1])
    prompt = capture_rows(CAPTURES[0], made.samples)
    later = {
        name: np.repeat(getattr(prompt, name), 2) for name in ("sample_index", "token_id", "produced_id", "position")
    }
    both = CaptureRows(
        "last", "after_layer", (0, 1, 2, 3), later["sample_index"], [i for i in prompt.stimulus_id for _ in range(2)],
        np.tile(np.array([-1, 4], np.int32), 3), later["position"], later["token_id"], later["produced_id"],
        np.zeros(6, np.bool_), np.repeat(prompt.values, 2, axis=1) * np.tile([1, 10], 3)[:, None].astype(np.float32),
    )  # fmt: skip
    path = tmp_path / "activations/part-00000.parquet"
    path.unlink()
    part = shards.write_activations(tmp_path, 0, "b", [both], sample_start=0, sample_end=3, metadata={})
    made.parts = [part if old.path == part.path else old for old in made.parts]
    made.finish()
    found = load(tmp_path)
    base = made.matrix("last", 2)
    assert np.array_equal(found.matrix(site="after_layer", layer=2, step=-1), base)
    assert np.array_equal(found.matrix(site="after_layer", layer=2, step=4), base * np.float32(10))
    with pytest.raises(InputError, match="has no rows of step 5"):
        found.matrix(site="after_layer", layer=2, step=5)
    assert found.matrix(site="after_layer", layer=2).shape == (6, 12)
    assert found.rows(site="after_layer", layer=2, step=4)["step"].to_pylist() == [4, 4, 4]
    assert found.rows(site="after_layer", layer=2)["step"].to_pylist() == [-1, 4] * 3


# --- what there is ----------------------------------------------------------------------------------------------------


def test_a_run_says_what_it_holds(run: Run) -> None:
    assert run.sites() == ("before_layer", "after_layer", "before_logits", "after_logits")
    assert run.layers("after_layer") == (0, 1, 2, 3)
    assert run.layers("after_layer", capture="every") == (1, 2)
    assert [record.name for record in run.captures] == ["last", "every", "word", "final", "scores"]
    assert run.manifest.status == "complete"
    assert run.generations["sample_index"].to_pylist() == list(range(13))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            {"site": "after_mlp", "layer": 0},
            r"no site 'after_mlp'; it has 'last': after_layer, layers 0 to 3, last; 'every'",
        ),
        ({"site": "nonsense", "layer": 0}, "no site 'nonsense'"),
        ({"site": "after_layer", "layer": 4}, r"layer 4 of after_layer was not captured.*layers 0 to 3"),
        ({"site": "after_layer", "layer": -5}, "layer -5 of after_layer was not captured"),
        ({"site": "after_layer", "layer": 0, "capture": "other"}, "no site 'after_layer', capture 'other'"),
        ({"site": "after_layer", "layer": 0, "capture": "every"}, "layer 0 of after_layer was not captured"),
        (
            {"site": "after_layer", "layer": 1},
            "2 captures have layer 1 of after_layer: choose one of capture='last', 'every'",
        ),
        ({"site": "after_layer"}, "site after_layer needs `layer`"),
        ({"site": "before_logits", "layer": 2}, "site before_logits has no layers"),
    ],
)
def test_what_is_not_there_lists_what_is(run: Run, wanted: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run.matrix(**wanted)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        run.rows(**wanted)  # type: ignore[arg-type]


def test_a_run_without_generations_gives_an_empty_table(tmp_path: Path) -> None:
    made = make_run(tmp_path, units=(2,))
    made.parts = [part for part in made.parts if part.table != "generations"]
    made.finish()
    found = load(tmp_path).generations
    assert found.num_rows == 0
    assert "token_ids" in found.column_names


# --- loading ----------------------------------------------------------------------------------------------------------


def test_pipelines_offers_load(made: FakeRun) -> None:
    found = pipelines.load(str(made.directory))
    assert isinstance(found, pipelines.Run)


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a directory"):
        load(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"holds no finished run.*`ember pipeline run CONFIG` again: it goes on"):
        load(tmp_path)


def test_a_partial_run_is_read_only_when_asked(tmp_path: Path) -> None:
    made = make_run(tmp_path, units=(4, 3), failed=(1, 5))
    with pytest.raises(RunError, match=r"2 of 7 prompts of .* failed.*partial=True"):
        load(tmp_path)
    found = load(tmp_path, partial=True)
    assert found.stimuli["sample_index"].to_pylist() == [0, 2, 3, 4, 6]
    assert np.array_equal(found.matrix(site="after_layer", layer=0), made.matrix("last", 0))
    assert found.rows(site="after_layer", layer=0)["sample_index"].to_pylist() == [0, 2, 3, 4, 6]
    assert found.generations["sample_index"].to_pylist() == [0, 2, 3, 4, 6]


def test_damage_is_found_when_asked(tmp_path: Path) -> None:
    make_run(tmp_path, units=(2,))
    path = tmp_path / "activations/part-00000.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(VerifyError, match=r"has .* bytes, the manifest says"):
        load(tmp_path, verify=True)


def test_a_manifest_cannot_lead_out_of_the_run(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", units=(2,))
    made.parts = [replace(part, path=f"../run/{part.path}") for part in made.parts]
    made.finish()
    with pytest.raises(VerifyError, match="no path of a part"):
        load(tmp_path / "run").matrix(site="after_layer", layer=0)


# --- cost -------------------------------------------------------------------------------------------------------------


def big_run(directory: Path) -> FakeRun:
    """12 units of 250 rows of 576 numbers: a matrix of 6.9 MB, row groups of 0.6 MB."""
    record = CaptureRecord("last", "after_layer", (0, 1, 2, 3), "last", 576)
    return make_run(directory, units=(250,) * 12, captures=(record,))


@pytest.mark.slow
def test_a_matrix_costs_one_copy(tmp_path: Path) -> None:
    """Q05: beside the matrix there are a row group and its pages in memory, never a second matrix."""
    big_run(tmp_path)
    script = f"""
import tracemalloc, pyarrow, pipelines
run = pipelines.load({str(tmp_path)!r})
tracemalloc.start()
found = run.matrix(site="after_layer", layer=2)
print(found.nbytes, tracemalloc.get_traced_memory()[1], pyarrow.default_memory_pool().max_memory())
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    matrix, python, arrow = map(int, told.stdout.split())
    assert matrix == 3000 * 576 * 4
    assert python < matrix + 3_000_000
    assert arrow < matrix * 2 / 3


@pytest.mark.slow
def test_a_matrix_is_faster_than_python_lists(tmp_path: Path) -> None:
    big_run(tmp_path)
    run = load(tmp_path)
    assert min(_seconds(run) for _ in range(5)) < _seconds_through_lists(tmp_path) / 4


def _seconds(run: Run) -> float:
    start = time.perf_counter()
    run.matrix(site="after_layer", layer=2)
    return time.perf_counter() - start


def _seconds_through_lists(directory: Path) -> float:
    start = time.perf_counter()
    chosen = (ds.field("layer") == 2) & (ds.field("site") == "after_layer")
    table = ds.dataset(directory / "activations").to_table(columns=["activation"], filter=chosen)
    np.array(table["activation"].to_pylist(), np.float32)
    return time.perf_counter() - start


# --- other readers: the snippets of the documentation -----------------------------------------------------------------


@pytest.fixture(scope="module")
def wanted(run: Run) -> tuple[np.ndarray, list[str], list[str]]:
    """Matrix, ids and roots as `pipelines.load` gives them."""
    stimuli = run.stimuli
    X = run.matrix(site="after_layer", layer=2, capture="last")
    return X, stimuli["id"].to_pylist(), stimuli["label_root"].to_pylist()


def snippets(made: FakeRun) -> dict[str, str]:
    """Python blocks of the documentation by heading, on the run at hand."""
    page = (ROOT / "docs/how-to/read-a-run.md").read_text()
    found: dict[str, str] = {}
    for section in page.split("\n## ")[1:]:
        blocks = [block.split("```")[0] for block in section.split("```python\n")[1:]]
        found[section.splitlines()[0]] = "\n".join(blocks).replace("outputs/roots", str(made.directory))
    return {heading: code for heading, code in found.items() if code}


@pytest.mark.parametrize("reader", ["pandas", "polars", "DuckDB", "pyarrow"])
def test_documented_snippets(made: FakeRun, wanted: tuple[np.ndarray, list[str], list[str]], reader: str) -> None:
    names: dict[str, Any] = {}
    exec(snippets(made)[f"With {reader}"], names)
    assert names["X"].dtype == np.float32
    assert np.array_equal(names["X"], wanted[0])
    assert names.get("y", wanted[2]) == wanted[2]


def test_documented_snippet_of_ember(made: FakeRun, wanted: tuple[np.ndarray, list[str], list[str]]) -> None:
    names: dict[str, Any] = {}
    exec(snippets(made)["With Ember"], names)
    assert np.array_equal(names["X"], made.matrix("every", 2))
    assert len(names["keys"]) == len(names["X"])
    assert names["y"] == wanted[2]


def test_every_snippet_is_executed(made: FakeRun) -> None:
    assert list(snippets(made)) == ["With Ember", "With pandas", "With polars", "With DuckDB", "With pyarrow"]


def test_documented_columns_are_those_of_the_tables() -> None:
    page = (ROOT / "docs/how-to/read-a-run.md").read_text()
    table = page.split("| column | |")[1].split("\n\n")[0]
    documented = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert documented == tables.activations_schema(4, "float32").names


def test_duckdb_needs_a_cast_for_functions_of_arrays(
    made: FakeRun, wanted: tuple[np.ndarray, list[str], list[str]]
) -> None:
    """Q08: DuckDB loses the length; it stands in the file's metadata as ember.width."""
    path = made.directory / "activations/part-00000.parquet"
    told = dict(duckdb.sql(f"select decode(key), decode(value) from parquet_kv_metadata('{path}')").fetchall())
    width = int(told["ember.width"])
    ((norm,),) = duckdb.sql(f"""
        select array_inner_product(activation::float[{width}], activation::float[{width}]) from '{path}'
        where capture = 'last' and layer = 2 and sample_index = 1
    """).fetchall()
    assert norm == pytest.approx(float((wanted[0][1].astype(np.float64) ** 2).sum()), rel=1e-6)


def test_continuations_in_every_reader(made: FakeRun, run: Run) -> None:
    folder = made.directory / "generations"
    texts, ids = run.generations["text"].to_pylist(), run.generations["token_ids"].to_pylist()
    assert pd.read_parquet(folder)["text"].tolist() == texts
    assert [list(found) for found in pd.read_parquet(folder)["token_ids"]] == ids
    assert pl.read_parquet(folder / "*.parquet")["token_ids"].to_list() == ids
    found = duckdb.sql(f"select text, token_ids from '{folder}/*.parquet' order by sample_index").fetchall()
    assert found == list(zip(texts, ids, strict=True))


def test_readers_prune_row_groups(made: FakeRun) -> None:
    """Plain strings, not dictionaries, let pyarrow skip the other layers."""
    fragment = next(ds.dataset(made.directory / "activations").get_fragments())
    chosen = (ds.field("capture") == "last") & (ds.field("site") == "after_layer") & (ds.field("layer") == 2)
    assert [group.id for group in fragment.subset(chosen).row_groups] == [2]


def test_neither_writing_nor_reading_imports_pandas(tmp_path: Path) -> None:
    """It is half a second and 30 MB in every worker, and `pyarrow.array` imports it."""
    script = f"""
import sys
from pathlib import Path
from tests.foundry.fake_run import make_run
import pipelines
make_run(Path({str(tmp_path)!r}), units=(3, 2), failed=(1,))
run = pipelines.load({str(tmp_path)!r}, verify=True, partial=True)
run.matrix(site="after_layer", layer=1, capture="every"), run.rows(site="before_logits"), run.stimuli, run.generations
print([name for name in ("pandas", "polars", "duckdb") if name in sys.modules])
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout == "[]\n"


@pytest.mark.parametrize("hint", [0, 1, 2, 5, 99])
def test_a_wrong_hint_finds_the_same_groups(made: FakeRun, hint: int) -> None:
    with tables.open_part(made.directory / "activations/part-00001.parquet") as part:
        found = tables.find_groups(part, ("every", "after_layer", 2), hint)
        assert [(group.index, group.rows) for group in found] == [(5, sum(len(s.tokens) for s in made.samples[4:7]))]
        assert tables.find_groups(part, ("every", "after_layer", 3), hint) == []


def test_parts_whose_groups_stand_elsewhere_are_read_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part without rows of one capture, or with groups that were cut, moves the groups of the others."""
    made = make_run(tmp_path, units=(3, 3, 3), captures=CAPTURES[:3])
    monkeypatch.setattr(shards, "GROUP_BYTES", 150)
    rows = [capture_rows(record, made.samples[3:6]) for record in CAPTURES[:3]]
    path = tmp_path / "activations/part-00001.parquet"
    path.unlink()
    part = shards.write_activations(tmp_path, 1, "b", rows, sample_start=3, sample_end=6, metadata={})
    made.parts = [part if old.path == part.path else old for old in made.parts]
    made.finish()
    assert pq.read_metadata(path).num_row_groups > 7
    found = load(tmp_path)
    for record in CAPTURES[:3]:
        for layer in record.layers:
            matrix = found.matrix(site=record.site, layer=layer, capture=record.name)
            assert np.array_equal(matrix, made.matrix(record.name, layer))


def test_foreign_row_groups_are_refused(tmp_path: Path) -> None:
    make_run(tmp_path, units=(3,))
    path = tmp_path / "activations/part-00000.parquet"
    pq.write_table(pq.read_table(path), path)
    with pytest.raises(RunError, match=r"part-00000\.parquet.*not of one capture.*pipeline verify"):
        load(tmp_path).matrix(site="after_layer", layer=0)
    path.write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"part-00000\.parquet.*pipeline verify"):
        load(tmp_path).rows(site="after_layer", layer=0)
    path.unlink()
    with pytest.raises(RunError, match=r"part-00000\.parquet"):
        load(tmp_path).matrix(site="after_layer", layer=0)
    (tmp_path / "stimuli.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"stimuli\.parquet"):
        _ = load(tmp_path).stimuli
