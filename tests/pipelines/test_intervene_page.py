"""The configs of docs/how-to/intervene.md run, one after the other, and do what the page says."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from ember.positions import KINDS
from pipelines.config import load_config
from pipelines.config.hooks import InterveneConfig
from pipelines.running import run
from pipelines.verify import verify

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/intervene.md").read_text(encoding="utf-8")
CONFIGS = re.findall(r"```yaml\n# (\w+)\.yaml.*?\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which the page's configs were run."""
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, text in CONFIGS:
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
            assert run(folder / f"{name}.yaml", scheduler="serial").status == "complete"
            verify(folder / "outputs" / name)
    return folder


def test_the_page_has_its_three_configs(folder: Path) -> None:
    assert [name for name, _ in CONFIGS] == ["baseline", "patched", "restored"]
    baseline = pipelines.load(folder / "outputs/baseline")
    assert set(baseline.rows(site="after_mlp", layer=2)["stimulus_id"].to_pylist()) == {"ktb-clean", "drs-clean"}


def test_patches_put_the_clean_states_in(folder: Path) -> None:
    baseline, patched = (pipelines.load(folder / "outputs" / name) for name in ("baseline", "patched"))
    rows = baseline.rows(site="after_layer", layer=1, capture="states").to_pylist()
    states = baseline.matrix(site="after_layer", layer=1, capture="states")
    last = max(row["position"] for row in rows if row["stimulus_id"] == "drs-clean")
    wanted = next(i for i, r in enumerate(rows) if (r["stimulus_id"], r["position"]) == ("drs-clean", last))
    ids = patched.stimuli["id"].to_pylist()
    found = patched.matrix(site="after_layer", layer=1)[ids.index("drs-1")]
    np.testing.assert_array_equal(found, states[wanted])


def test_what_is_put_back_is_the_baseline(folder: Path) -> None:
    baseline, restored = (pipelines.load(folder / "outputs" / name) for name in ("baseline", "restored"))
    mine = [
        row == "ktb-clean"
        for row in baseline.rows(site="after_layer", layer=4, capture="states")["stimulus_id"].to_pylist()
    ]
    for layer in range(5):
        wanted = baseline.matrix(site="after_layer", layer=layer, capture="states")[mine]
        np.testing.assert_allclose(restored.matrix(site="after_layer", layer=layer), wanted, rtol=1e-4, atol=1e-3)
    texts = dict(zip(*(baseline.generations[name].to_pylist() for name in ("stimulus_id", "text")), strict=True))
    assert restored.generations["text"].to_pylist() == [texts["ktb-clean"]]


def test_the_lens_of_the_last_layer_is_what_comes_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    run, model = names["run"], names["model"]
    assert names["ids"].shape == names["log_probabilities"].shape == (len(names["states"]), 3)
    rows = run.rows(site="after_layer", layer=4, capture="states").to_pylist()
    ids, _ = model.logit_lens(run.matrix(site="after_layer", layer=4, capture="states"), top_k=1)
    first = {row["stimulus_id"]: row["token_ids"][0] for row in run.generations.to_pylist()}
    lengths = {row["id"]: row["n_tokens"] for row in run.stimuli.to_pylist()}
    last = {
        r["stimulus_id"]: int(i[0])
        for r, i in zip(rows, ids, strict=True)
        if r["position"] == lengths[r["stimulus_id"]] - 1
    }
    assert last == first


def test_the_tables_name_everything() -> None:
    operations = InterveneConfig.model_json_schema()["properties"]["operation"]["enum"]
    assert [name for name in operations if f"| `{name}` |" not in PAGE] == []
    assert [kind for kind in KINDS if kind not in PAGE] == []


def test_the_experiments_load(tmp_path: Path) -> None:
    (section,) = re.findall(r"```yaml\n(hooks:\n  experiment:.*?)```", PAGE, re.DOTALL)
    head = CONFIGS[0][1].partition("hooks:")[0]
    (tmp_path / "x.yaml").write_text(f"{head}{section}output: {{dir: x}}\n", encoding="utf-8")
    used = [one.use for one in load_config(tmp_path / "x.yaml").hooks.experiment]
    assert used == ["activation_stats", "zero_layer_output", f"{tmp_path}/shares.py:AttentionShare"]
