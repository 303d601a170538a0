"""The first tutorial's commands can be typed as they stand: every file that they name is there or made on the way."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.config import load_config
from pipelines.lint import lint
from pipelines.probes.config import load_probes

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
PAGE = (ROOT / "docs/tutorials/roots.md").read_text(encoding="utf-8")
COMMANDS = [block.splitlines() for block in re.findall(r"^```\n((?:ember .*\n)+)```$", PAGE, re.MULTILINE)]


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONFIGS / name).read_text(encoding="utf-8"))
    return found


def test_the_control_is_the_main_job_but_for_what_makes_it_one(tmp_path: Path) -> None:
    main, control = read("roots.yaml"), read("untrained.yaml")
    changed = {key for key in main | control if main.get(key) != control.get(key)}
    assert changed == {"name", "model", "guard", "output"}
    assert (control["model"], control["guard"]) == ({"path": "untrained.gguf"}, {"allow_chance": True})
    for name in ("roots.yaml", "untrained.yaml"):
        shutil.copy(CONFIGS / name, tmp_path)
    ember(tmp_path, "untrained builtin:sarf-nano untrained.gguf --seed 1")
    one, other = (lint(load_config(tmp_path / name)) for name in ("roots.yaml", "untrained.yaml"))
    assert (one.stimuli, one.findings, one.tokens) == (other.stimuli, other.findings, other.tokens)


def test_its_probes_are_those_of_the_main_job_with_one_control_more() -> None:
    main, control = read("probe.yaml"), read("probe-untrained.yaml")
    assert {key for key in main | control if main.get(key) != control.get(key)} == {"name", "untrained", "output"}
    plan = load_probes(CONFIGS / "probe-untrained.yaml")
    assert plan.untrained is not None
    outputs = [str(CONFIGS / "../outputs" / name) for name in ("roots", "untrained")]
    assert [str(Path(path).resolve()) for path in (*plan.runs, plan.untrained)] == [
        str(Path(path).resolve()) for path in outputs
    ]
    assert read("untrained.yaml")["output"]["dir"] == "outputs/untrained"
    assert f"--probes {control['output']['dir']}" in PAGE


def ember(folder: Path, command: str) -> str:
    words = [sys.executable, "-m", "ember", *shlex.split(command, comments=True)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=None, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def cut_down(name: str, folder: Path) -> None:
    """Write a config of the same shape that takes seconds: two kinds of roots, fewer patterns, layers and draws."""
    config = read(name)
    if "stimuli" in config:
        stimuli = config["stimuli"]
        stimuli["roots"] = [*stimuli["roots"][:4], *stimuli["roots"][11:14]]
        stimuli["patterns"] = dict(list(stimuli["patterns"].items())[:3])
    else:
        config |= {"layers": [1], "draws": 100, "captures": ["after_layer"], "probes": ["mean_difference"]}
    (folder / name).write_text(yaml.safe_dump(config, allow_unicode=True, sort_keys=False), encoding="utf-8")


@pytest.mark.slow
def test_the_commands_can_be_typed_as_they_stand(tmp_path: Path) -> None:
    assert [len(block) for block in COMMANDS] == [4, 4]
    (tmp_path / "configs").mkdir()
    for name in ("roots.yaml", "probe.yaml", "untrained.yaml", "probe-untrained.yaml"):
        cut_down(name, tmp_path / "configs")
    for command in (line for block in COMMANDS for line in block):
        ember(tmp_path, command.removeprefix("ember "))
    page = (tmp_path / "outputs/roots/report.html").read_text(encoding="utf-8")
    assert "No untrained model was probed" not in page
    assert (tmp_path / "outputs/probes-untrained/results.parquet").is_file()
