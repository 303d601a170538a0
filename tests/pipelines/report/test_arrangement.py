"""Geometry in a report: the numbers of geometry.parquet, its figures, and geometry that is not this run's."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from pipelines.errors import VerifyError
from pipelines.geometry import measure
from pipelines.report import Report, make_report


@pytest.fixture(scope="module")
def run(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the small run with its geometry."""
    copy = Path(shutil.copytree(small, tmp_path_factory.mktemp("geometry") / "run"))
    measure(copy)
    return copy


@pytest.fixture(scope="module")
def found(run: Path) -> Report:
    """Its report."""
    return make_report(run)


def test_numbers_are_those_of_the_table(run: Path, found: Report) -> None:
    table = pd.read_parquet(run / "geometry/geometry.parquet")
    assert found.record["geometry"] == {"rows": len(table)}
    labels = table[(table["measure"] == "rsa") & (table["other"] != "layer") & (table["layer"] >= 0)]
    assert len(labels) == 3 * 5
    for value in [*labels["value"], *labels["baseline"]]:
        assert f"{value:.3f}".replace("-", "−") in found.html
    words = table[table["measure"] == "tokens_per_word"]
    assert all(f"{value:.2f}" in found.html for value in words["value"])


def test_its_figures_are_there(found: Report) -> None:
    names = {name.rpartition(".")[0] for name in found.figures}
    assert {"cka-1", "rsa-1", "divergence-1", "map-kind"} <= names
    assert "which hold" in found.html


def test_geometry_of_another_run_and_damaged_one_are_refused(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    path = copy / "geometry/manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(manifest | {"run": {"name": "x", "semantic_hash": "0"}}), encoding="utf-8")
    with pytest.raises(VerifyError, match="geometry of another run"):
        make_report(copy)
    path.write_text(json.dumps(manifest), encoding="utf-8")
    (copy / "geometry/geometry.parquet").write_bytes(b"PAR1")
    with pytest.raises(VerifyError, match="is not the file"):
        make_report(copy)
