"""Baseline, intervened run, restored run: what a comparison says of them, on the built-in model."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.comparison.records import CaptureComparison
from pipelines.comparison.report import comparison_lines
from pipelines.errors import VerifyError

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ("اسم الفاعل من الجذر ك ت ب:", "اسم المفعول من الجذر ك ت ب:", "اسم المكان من الجذر د ر س:")
ZERO = {"operation": "zero", "site": "after_layer", "layers": [2], "position": {"index": 2}}
CAPTURES = [{"site": "after_layer", "position": "all"}, {"site": "after_logits"}]
ROUNDING = 1e-4
"""Under contract 1 (docs/architecture.md, 3.5) rows of another unit may differ by as much."""


def run(folder: Path, name: str, interventions: list[dict[str, Any]]) -> Path:
    captures = [capture | ({"observe": "after"} if interventions else {}) for capture in CAPTURES]
    config = {
        "schema": "ember.pipeline/v1",
        "name": name,
        "model": {"path": "builtin:sarf-nano"},
        "stimuli": {
            "items": [{"id": f"s{i}", "prompt": p, "expected": " كَاتِب"} for i, p in enumerate(PROMPTS)],
            "allow_leaks": True,
        },
        "hooks": {"capture": captures, "intervene": interventions},
        "generate": {"max_tokens": 6},
        "score": {"expected": True, "top_k": 3},
        "output": {"dir": str(folder / name)},
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    pipelines.run(path, scheduler="serial")
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("workflow")
    restore = ZERO | {"operation": "restore", "source": {"run": str(folder / "baseline"), "capture": "after_layer"}}
    plans = {"baseline": [], "zeroed": [ZERO], "restored": [ZERO, restore]}
    return {name: run(folder, name, plan) for name, plan in plans.items()}


def differing(capture: CaptureComparison) -> list[int]:
    """Layers whose largest difference is more than rounding."""
    return [layer.layer for layer in capture.layers if (layer.max_relative or 0.0) > ROUNDING]


def test_an_intervention_shows_from_its_layer_on(runs: dict[str, Path]) -> None:
    found = pipelines.compare(runs["baseline"], runs["zeroed"])
    states, logits = found.captures
    assert differing(states) == [2, 3, 4]
    at = states.layers[2]
    assert at.worst is not None
    assert at.worst.position == 2
    assert at.cosine_worst == 0.0
    assert at.identical in (0, at.rows - 3)  # one row of each prompt; under contract 1 perhaps all
    assert differing(logits) == [-1]
    assert logits.layers[0].top1_same is not None
    assert not found.identical
    assert any("intervene" in line for line in found.differences["hooks"])
    assert not any(found.differences[part] for part in ("model", "tokenizer", "stimuli", "generation", "numerics"))
    (score,) = found.scores
    assert score.compared == 3
    assert score.max_difference > 0.01


def test_restoring_gives_the_baseline_back(runs: dict[str, Path]) -> None:
    found = pipelines.compare(runs["baseline"], runs["restored"])
    assert [differing(capture) for capture in found.captures] == [[], []]
    contract = pipelines.load(runs["baseline"]).manifest.origin.numerics["contract"]
    assert found.identical or contract == 1
    assert found.generations is not None
    assert found.generations.same_tokens == 3
    assert found.scores[0].max_difference < ROUNDING
    assert any(line.startswith("same        model") for line in comparison_lines(found))


def test_a_tampered_run_is_refused(runs: dict[str, Path]) -> None:
    part = next((runs["restored"] / "generations").iterdir())
    before = part.read_bytes()
    part.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    try:
        with pytest.raises(VerifyError, match=r"generations/part-00000\.parquet"):
            pipelines.compare(runs["baseline"], runs["restored"])
    finally:
        part.write_bytes(before)


def test_the_page_shows_what_the_command_says(runs: dict[str, Path]) -> None:
    page = (ROOT / "docs/how-to/compare-runs.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(block.replace("outputs/", f"{runs['baseline'].parent}/"), {})
    told = comparison_lines(pipelines.compare(runs["baseline"], runs["zeroed"]))
    shape = [line.split()[:3] for line in told if re.match(r"  +[0-9] +[0-9]+ ", line)]
    shown = [line.split()[:2] for line in page.splitlines() if re.match(r"  +[0-9] +[0-9]+ ", line)]
    assert shown == [cells[:2] for cells in shape]
    for word in ("same        model, tokenizer, stimuli, generation, numerics", "common      3 stimuli, matched by id"):
        assert word in page
        assert word in told
