"""A small real run with answers that are right and wrong, texts that attack a page, and its report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.config import RunConfig
from pipelines.report import Report, make_report
from pipelines.stimuli.morphology import apply

PATTERNS = {
    "active": ("1A2i3", "اسم الفاعل"),
    "passive": ("ma12uu3", "اسم المفعول"),
    "place": ("ma12a3", "اسم المكان"),
}
ROOTS = ("كتب", "درس", "فتح", "جمع", "علم", "شرب")
HOSTILE = '</script><img src=x onerror="alert(1)">'
OVERRIDE = "abc\u202egnp.exe"
QUOTES = '"it\'s" & <b>{{ 7 * 7 }}</b> $x^2$'
HOSTILE_LABEL = 'style="x" </td>'


def items() -> list[dict[str, Any]]:
    """18 prompts of which the model knows the answer, expected wrongly for every fourth; 3 that attack a page."""
    made = []
    for i, (root, name) in enumerate((root, name) for root in ROOTS for name in PATTERNS):
        pattern, title = PATTERNS[name]
        form = apply(root, pattern).surface
        made.append(
            {
                "id": f"{root}-{name}",
                "prompt": f"{title} من الجذر {' '.join(root)}:",
                "labels": {"root": root, "pattern": name, "kind": "word"},
                "template": "by_name",
                "expected": f" {form[::-1]}" if i % 4 == 3 else f" {form}",
                "target": title,
            }
        )
    for i, text in enumerate((HOSTILE, OVERRIDE, QUOTES)):
        labels = {"root": ROOTS[0], "pattern": HOSTILE_LABEL, "kind": text}
        made.append({"id": f"bad-{i}", "prompt": text, "labels": labels, "expected": text, "target": text[:3]})
    return made


def small_config(out: Path, **more: Any) -> RunConfig:
    """The config of the small run."""
    told: dict[str, Any] = {
        "schema": "ember.pipeline/v1",
        "name": "small",
        "model": {"path": "builtin:sarf-nano"},
        "stimuli": {"items": items(), "allow_leaks": True, "reveals": ["pattern"]},
        "hooks": {"capture": [{"site": "after_layer", "position": "last"}, {"name": "norm", "site": "before_logits"}]},
        "generate": {"max_tokens": 12},
        "score": {"expected": True, "choices": ["{expected}", " كَاتِب"], "top_k": 2},
        "output": {"dir": str(out)},
        "guard": {"positions": 16},
    }
    return RunConfig.model_validate(told | more)


@pytest.fixture(scope="session")
def run_small() -> Callable[..., Path]:
    """Run the small config, changed by keywords, and return its directory."""

    def runs(out: Path, **more: Any) -> Path:
        pipelines.run(small_config(out, **more), scheduler="serial")
        return out

    return runs


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory, run_small: Callable[..., Path]) -> Path:
    """The directory of the small run."""
    return run_small(tmp_path_factory.mktemp("report") / "small")


@pytest.fixture(scope="session")
def report(small: Path) -> Report:
    """Its report."""
    return make_report(small)
