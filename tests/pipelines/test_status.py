"""How far a run is, where its manifest is whole, absent, or damaged."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ember.errors import GuardError
from pipelines import journal
from pipelines.cli.main import pipeline
from pipelines.config import RunConfig, load_config
from pipelines.errors import RunError, VerifyError
from pipelines.manifest import read_manifest
from pipelines.reading import load
from pipelines.running import run
from pipelines.status import read_status
from pipelines.verify import verify
from tests.faults.rig import make_config

WORDS = ("house", "river", "seven", "green", "window", "letter")


def guarded(folder: Path, items: list[dict[str, str]], guard: dict[str, bool]) -> RunConfig:
    return make_config(folder, items, model={"path": "builtin:sarf-nano"}, guard=guard)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    told: dict[str, Any] = {
        "schema": "ember.pipeline/v1",
        "name": "status",
        "model": {"path": "builtin:sarf-nano"},
        "stimuli": {"items": [{"prompt": "اسم الفاعل من الجذر ك ت ب:"}, {"prompt": "كتب"}]},
        "hooks": {"capture": [{"site": "after_layer", "layers": [1]}]},
        "output": {"dir": str(tmp_path / "run")},
    }
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(told))
    run(load_config(path), scheduler="serial")
    return path


def test_a_finished_run_is_complete(config: Path) -> None:
    found = read_status(config.with_suffix(""))
    assert (found.state, found.done, found.pending, found.problem) == ("complete", 2, 0, None)
    assert not any("manifest" in line for line in found.lines())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "", "is not JSON"),
        (lambda text: text[: len(text) // 2], "is not JSON"),
        (lambda text: "[" * 100_000, "is not JSON"),
        (lambda text: "{}", "schema_version is None"),
        (lambda text: text.replace('"samples": 2', '"samples": "two"'), "samples: Input should be a valid integer"),
    ],
)
def test_a_damaged_manifest_is_told_and_mended_as_it_says(config: Path, damage: Any, said: str) -> None:
    run_dir = config.with_suffix("")
    path = run_dir / "manifest.json"
    before = read_manifest(run_dir)
    path.write_text(damage(path.read_text()))
    done = CliRunner().invoke(pipeline, ["status", str(run_dir)])
    assert done.exit_code == 0
    assert done.output.startswith(f"{run_dir}: damaged\n")
    assert f"the manifest cannot be read: {path}" in done.output
    assert said in done.output
    assert f"or remove {path} and run the same config again" in done.output
    assert json.loads(CliRunner().invoke(pipeline, ["status", str(run_dir), "--json"]).output)["state"] == "damaged"
    path.unlink()
    assert read_status(run_dir).state == "unfinished"
    part = next((run_dir / "activations").iterdir())
    written = part.stat().st_mtime_ns
    run(load_config(config), scheduler="serial")
    assert part.stat().st_mtime_ns == written
    assert verify(run_dir).sound
    assert read_manifest(run_dir) == before


def test_a_stop_by_the_guard_is_told_by_all_that_need_the_run(tmp_path: Path) -> None:
    """Words of one's own, which sarf-nano was not trained on; allowing that finishes the run."""
    items = [{"prompt": f"{word} {other}"} for word in WORDS for other in WORDS]
    config = guarded(tmp_path, items, {})
    with pytest.raises(GuardError, match="unlike anything it was trained on"):
        run(config, scheduler="serial")
    run_dir = tmp_path / "run"
    found = read_status(run_dir)
    assert found.state == "unfinished"
    assert found.stopped is not None
    assert "set guard.allow_chance: true" in found.stopped
    assert found.next_step.startswith("see to what stopped it, then run the same config again")
    assert f"the last session was stopped: {found.stopped}" in found.lines()
    with pytest.raises(
        RunError, match=r"stopped: the model predicts .*guard\.allow_chance: true.*See to that, then run"
    ):
        load(run_dir)
    with pytest.raises(
        VerifyError, match=r"stopped: the model predicts .*guard\.allow_chance: true.*See to that, then run"
    ):
        verify(run_dir)
    run(guarded(tmp_path, items, {"allow_chance": True}), scheduler="serial")
    assert (read_status(run_dir).state, read_status(run_dir).stopped) == ("complete", None)


def test_a_session_that_began_since_is_not_said_to_have_been_stopped(tmp_path: Path) -> None:
    (tmp_path / ".ember/log").mkdir(parents=True)
    journal.note(tmp_path, "stopped", kind="RunError", cause="no space left")
    assert "stopped: no space left. See to that" in journal.how_to_go_on(tmp_path)
    journal.note(tmp_path, "session", pid=1)
    assert journal.how_to_go_on(tmp_path).startswith("Run the same")
    with (tmp_path / ".ember/log/journal.jsonl").open("a") as file:
        file.write('{"event": "stop')
    assert journal.last_stop(tmp_path) is None


def test_a_manifest_that_is_no_plain_file(config: Path, tmp_path: Path) -> None:
    path = config.with_suffix("") / "manifest.json"
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    found = read_status(path.parent)
    assert found.state == "damaged"
    assert found.problem is not None
    assert "is not a plain file" in found.problem
    path.unlink()
    path.symlink_to(tmp_path / "absent.json")
    assert read_status(path.parent).state == "damaged"
