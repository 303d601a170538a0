"""Runs as pandas and polars frames and as a DuckDB database: the same rows and numbers as the matrices."""

import sys
from pathlib import Path

import numpy as np
import pytest

from ember.errors import InputError
from pipelines.reading import Run, load
from tests.foundry.fake_run import FakeRun, make_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    return make_run(tmp_path_factory.mktemp("frames") / "it's a run", units=(4, 3, 6), failed=(2,))


@pytest.fixture(scope="module")
def run(made: FakeRun) -> Run:
    return load(made.directory, partial=True)


def test_stimuli_and_continuations_side_by_side(run: Run) -> None:
    pandas, polars = run.to_pandas(), run.to_polars()
    assert len(pandas) == polars.height == 12
    assert pandas["id"].tolist() == polars["id"].to_list() == run.stimuli["id"].to_pylist()
    assert pandas["correct"].tolist() == run.generations["correct"].to_pylist()
    assert pandas["stimulus_id"].tolist() == pandas["id"].tolist()
    assert polars["token_ids"].to_list() == run.stimuli["token_ids"].to_pylist()
    assert polars["new_token_ids"].to_list() == run.generations["token_ids"].to_pylist()
    assert polars["label_pattern"].to_list() == run.stimuli["label_pattern"].to_pylist()


def test_vectors_with_their_labels(made: FakeRun, run: Run) -> None:
    chosen = {"site": "after_layer", "layer": 2, "capture": "every"}
    wanted = made.matrix("every", 2)
    polars = run.to_polars(**chosen)
    np.testing.assert_array_equal(polars["activation"].to_numpy(), wanted)
    pandas = run.to_pandas(**chosen)
    np.testing.assert_array_equal(np.stack(pandas["activation"]), wanted)
    by_id = {s.stimulus.id: s.stimulus for s in made.samples}
    for row in polars.select("stimulus_id", "label_root", "label_pattern", "prompt", "template").iter_rows(named=True):
        stimulus = by_id[row["stimulus_id"]]
        assert row["label_root"] == stimulus.labels["root"]
        assert row["label_pattern"] == stimulus.labels.get("pattern")
        assert (row["prompt"], row["template"]) == (stimulus.prompt, stimulus.template or "")


def test_duckdb_has_a_view_for_each_table(made: FakeRun, run: Run) -> None:
    database = run.duckdb()
    names = {row[0] for row in database.sql("select view_name from duckdb_views() where not internal").fetchall()}
    assert names == {"stimuli", "activations", "logits", "generations"}
    found = database.sql(
        "select activation from activations join stimuli using (sample_index) "
        "where capture = 'last' and layer = 1 order by sample_index"
    ).fetchall()
    np.testing.assert_array_equal(np.array([row[0] for row in found], np.float32), made.matrix("last", 1))
    same = database.sql(
        "select array_cosine_similarity(activation, activation) from activations where capture = 'last'"
    ).fetchall()
    assert all(abs(row[0] - 1) < 1e-5 for row in same)
    assert database.sql("select count(*) from generations where correct").fetchall()[0][0] > 0


def test_an_absent_library_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match="pip install polars"):
        run.to_polars()


def test_runs_without_continuations_give_their_stimuli(tmp_path: Path) -> None:
    from pipelines.running import run as run_config
    from tests.faults.rig import make_config, prompts

    config = make_config(tmp_path, prompts(3))
    run_config(config, scheduler="serial")
    found = load(config.output.path)
    assert found.to_pandas()["id"].tolist() == found.stimuli["id"].to_pylist()
