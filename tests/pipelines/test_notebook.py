"""The example notebook runs, cell by cell, and prints what stands in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.foundry.notebook import ROOT, executed, prepare, written

NOTEBOOK = ROOT / "docs/tutorials/a-run-in-python.ipynb"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """The notebook as it is in the repository."""
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_every_cell_prints_what_stands_below_it(kept: dict[str, Any], tmp_path: Path) -> None:
    """After a change: `python -m tests.foundry.notebook docs/tutorials/a-run-in-python.ipynb`."""
    pytest.importorskip("polars", reason="the notebook shows polars")
    pytest.importorskip("duckdb", reason="the notebook shows DuckDB")
    prepare(tmp_path)
    again = executed(kept, tmp_path)
    for before, after in zip(kept["cells"], again["cells"], strict=True):
        assert after.get("outputs") == before.get("outputs"), "".join(before["source"])
    assert (tmp_path / "outputs/roots-reproduced/manifest.json").is_file()


def test_it_is_a_notebook_without_traces_of_a_machine(kept: dict[str, Any]) -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert text == written(kept)
    assert kept["nbformat"] == 4
    numbers = [cell["execution_count"] for cell in kept["cells"] if cell["cell_type"] == "code"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert "/tmp" not in text
    assert "/work" not in text
