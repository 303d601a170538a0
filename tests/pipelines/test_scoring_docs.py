"""The examples of docs/reference/scoring.md do what the page says."""

import re
from pathlib import Path
from typing import Any

import pytest

from pipelines.config import load_config
from pipelines.rows import SCORE_COLUMNS
from pipelines.running import run
from pipelines.stimuli.expect import STEPS
from pipelines.verify import verify

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/scoring.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_in_python() -> None:
    first, _ = blocks("python")
    names: dict[str, Any] = {}
    exec(first, names)
    right, wrong = names["right"], names["wrong"]
    assert f"{right.log_probability:.5f}" == "-0.00086"
    assert right.log_probability > wrong.log_probability
    assert set(right.ranks) == {1}
    assert not right.merged
    assert len(right.top.token_ids) == 3


def test_the_example_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(*blocks("yaml"), encoding="utf-8")
    run(load_config(tmp_path / "c.yaml"), scheduler="serial")
    verify(tmp_path / "outputs/choices")
    names: dict[str, Any] = {}
    exec(blocks("python")[1], names)
    rows = names["rows"]
    assert rows["choice_correct"].all()
    assert (rows["seed"] == 3).all()


def test_the_page_names_every_column_and_step() -> None:
    for name in (*SCORE_COLUMNS, *STEPS):
        assert f"`{name}`" in PAGE


def test_the_rule_on_the_page_is_the_rule_of_the_module() -> None:
    import ember.scoring

    quoted = " ".join(line.removeprefix("> ") for line in PAGE.splitlines() if line.startswith("> "))
    for said in (
        "If its ids begin with the ids of the prompt as fed, the others are the continuation's.",
        "the continuation is tokenised by itself as a fragment (no BOS, no space put before it), and the score",
    ):
        assert said in quoted
        assert said in " ".join((ember.scoring.__doc__ or "").split())
