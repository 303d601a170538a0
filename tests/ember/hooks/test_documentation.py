"""What the pages about hooks say is executed, and is all there is."""

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

import ember.hooks
from ember.cli.main import cli
from ember.cli.main import run as run_command
from ember.hooks import Experiment, TensorAccess
from ember.hooks.activation_stats import ActivationStats
from ember.hooks.loading import BUILT_IN
from pipelines.running import run as run_pipeline

ROOT = Path(__file__).resolve().parents[3]
HOW_TO = (ROOT / "docs/how-to/write-an-experiment.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/reference/hooks.md").read_text(encoding="utf-8")
PROMPTS = {"hollow": "اسم الفاعل من الجذر ق و ل:", "strong": "اسم الفاعل من الجذر ك ت ب:"}


def blocks(kind: str) -> list[str]:
    """Blocks of the how-to between fences, of one language or of none."""
    fenced = re.split(r"^```", HOW_TO, flags=re.MULTILINE)[1::2]
    return [text for language, _, text in (block.partition("\n") for block in fenced) if language == kind]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the page's classes in `shares.py`."""
    classes = [block.split("\n\n\nchanged =")[0] for block in blocks("python") if "class " in block]
    (tmp_path / "shares.py").write_text("\n\n".join(classes), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_how_to_works_from_top_to_bottom() -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, names)
    model = names["model"]
    shares, count = names["shares"], len(names["made"].token_ids)
    assert [s["layer"] for s in shares] == list(range(model.n_layers)) * count
    assert [s["phase"] for s in shares] == ["prefill"] * model.n_layers + ["decode"] * model.n_layers * (count - 1)
    assert all(0 < s["share"] < 10 for s in shares)
    assert names["changed"].token_ids != names["made"].token_ids
    assert names["states"].shape == (2, model.n_layers, model.hidden_size)
    assert set(names["by_prompt"]) == {0, 1}
    assert f"`message` is `{names['message']}`" in HOW_TO
    assert isinstance(names["cause"], ValueError)
    model.close()


def test_the_commands_of_the_how_to_work(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (commands,) = [block for block in blocks("") if "ember generate" in block]
    for line in commands.splitlines():
        arguments = shlex.split(line)[1:]
        status = run_command(lambda given=arguments: cli.main(given, standalone_mode=False))
        said = capsys.readouterr()
        assert status == 0, said.err
    ((found),) = json.loads(said.out)["findings"]
    assert found["experiment"] == "attention_share"
    assert {share["phase"] for share in found["results"]} == {"prefill", "decode"}


def test_the_configuration_of_the_how_to_works(folder: Path) -> None:
    (hooks,) = [yaml.safe_load(block) for block in blocks("yaml")]
    items = [{"id": name, "prompt": prompt, "labels": {"root_class": name}} for name, prompt in PROMPTS.items()]
    config = {
        "schema": "ember.pipeline/v1", "name": "shares", "model": {"path": "builtin:sarf-nano"},
        "stimuli": {"items": items}, "output": {"dir": "out"}, **hooks,
    }  # fmt: skip
    (folder / "shares.yaml").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    assert run_pipeline(folder / "shares.yaml", scheduler="serial").status == "complete"
    lines = [
        json.loads(line)
        for part in sorted((folder / "out/experiments").glob("part-*.jsonl"))
        for line in part.read_text(encoding="utf-8").splitlines()
    ]
    # Quieter finds nothing to say; the other looked at both prompts
    assert {"activation_stats"} == {one["experiment"] for one in lines}
    assert len(lines) == 2


def rows_of(heading: str) -> list[str]:
    """First cells of the table under a heading of the reference."""
    section = REFERENCE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")][2:]


def test_the_reference_lists_every_name() -> None:
    listed = re.search(r"import \((.*?)\)", REFERENCE, re.DOTALL)
    assert listed is not None
    assert sorted(re.split(r",\s*", listed[1])) == sorted(ember.hooks.__all__)


def test_the_reference_lists_every_method() -> None:
    methods = [name for name, one in vars(Experiment).items() if callable(one) and not name.startswith("_")]
    assert [cell.strip("`").split("(")[0] for cell in rows_of("Methods")] == methods


def test_the_reference_lists_every_field_of_the_contexts() -> None:
    section = REFERENCE.split("\n## Contexts\n")[1].split("\n## ")[0]
    for name in ("ModelContext", "ExecutionContext", "LayerContext", "GenerationContext"):
        (line,) = [line for line in section.splitlines() if line.startswith(f"| `{name}`")]
        fields = [field.name for field in dataclasses.fields(getattr(ember.hooks, name))]
        assert [one for one in re.findall(r"`(\w+)`", line.split("|")[2]) if one in fields] == fields


def test_the_reference_lists_what_a_view_offers() -> None:
    offered = {name for name in dir(TensorAccess) if not name.startswith("_")} - {"close"}
    assert {cell.strip("`()") for cell in rows_of("`TensorAccess`")} == offered


def test_the_reference_lists_the_fields_of_activation_stats() -> None:
    section = REFERENCE.split("### `activation_stats`")[1].split("###")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    stats = ActivationStats()
    with ember.open("builtin:sarf-nano") as model:
        model.generate(PROMPTS["strong"], max_tokens=1, experiments=[stats])
    assert list(stats.results()["records"][0]) == named
    assert all(f"`{name}" in REFERENCE for name in BUILT_IN)
