"""docs/how-to/share-a-run.md: its commands run, one after the other, and leave what it says."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pipelines.cli.main import pipeline

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/share-a-run.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^ember pipeline (.+)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A working directory in which the page's commands were run, and what they said."""
    folder = tmp_path_factory.mktemp("share")
    (config,) = re.findall(r"```yaml\n# shared\.yaml\n(.*?)```", PAGE, re.DOTALL)
    (folder / "shared.yaml").write_text(config, encoding="utf-8")
    said = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in COMMANDS:
            done = CliRunner().invoke(pipeline, command.split(), standalone_mode=False)
            assert not done.exception, (command, done.exception)
            assert done.return_value in (0, None), command
            said[command.split()[0]] = done.stdout
    return folder, said


def test_all_verbs_of_sharing_are_there() -> None:
    assert [command.split()[0] for command in COMMANDS] == ["run", "verify", "export", "export", "reproduce"]


def test_the_arrays_are_as_the_page_says(shared: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = shared
    monkeypatch.chdir(folder)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (shape,) = re.findall(r"# (\[.*\])$", block, re.MULTILINE)
    found: dict[str, np.ndarray] = {}
    exec(block, found)
    assert str(list(found["states"].shape)) == shape
    listed = set(re.findall(r"^\| `(shared_[\w.]+)` \|", PAGE, re.MULTILINE))
    assert {path.name for path in (folder / "outputs/shared-npy").iterdir()} == listed


@pytest.mark.parametrize("name", ["correctness", "metadata"])
def test_the_objects_are_as_the_page_says(shared: tuple[Path, dict[str, str]], name: str) -> None:
    told = json.loads((shared[0] / f"outputs/shared-npy/shared_{name}.json").read_text(encoding="utf-8"))
    section = PAGE.split(f"`shared_{name}.json`")[2].split("\n\n")[1]
    first_cells = [line.split("|")[1] for line in section.splitlines()[2:]]
    assert {key for cell in first_cells for key in re.findall(r"`(\w+)`", cell)} == told.keys()
    if name == "correctness":
        assert told["stimuli"][0].keys() == {"index", "id", "correct", "expected", "produced"}


def test_the_run_comes_back(shared: tuple[Path, dict[str, str]]) -> None:
    folder, said = shared
    assert said["reproduce"].rstrip().endswith("reproduced: every token, value and bit is the same")
    assert (folder / "outputs/shared-reproduced/README.md").is_file()


def test_a_copy_without_the_state_can_be_read_verified_and_reproduced(
    shared: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    import shutil

    from pipelines.reproduce import reproduce
    from pipelines.verify import verify

    copy = shutil.copytree(shared[0] / "outputs/shared", tmp_path / "copy", ignore=shutil.ignore_patterns(".ember"))
    verify(copy)
    assert reproduce(copy, scheduler="serial").level == "nothing"
