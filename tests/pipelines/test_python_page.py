"""What `pipelines` offers from Python: the page's blocks, the names, their types, and that importing costs nothing."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipelines
from ember.errors import InputError
from pipelines import notebook

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The page's blocks, executed in a folder of their own, and the names that they leave."""
    folder = tmp_path_factory.mktemp("page")
    (config,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (folder / "words.yaml").write_text(config, encoding="utf-8")
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(block, names)
        yield folder, names


@pytest.mark.slow
def test_the_blocks_do_what_they_say(lived: tuple[Path, dict[str, Any]]) -> None:
    folder, names = lived
    assert names["X"].shape == (18, 128)
    assert len(names["y"]) == 18
    assert names["summary"].status == "complete"
    assert names["probed"].directory.resolve() == (folder / "outputs/words/probes").resolve()
    assert (folder / "outputs/words/report.html").read_text(encoding="utf-8") == names["page"].html
    assert names["exported"].shapes == {"after_layer": (18, 1, 128)}


@pytest.mark.slow
def test_two_runs_and_figures(lived: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    runs = (lived[0] / "outputs/words", lived[0] / "outputs/words-reproduced")
    found = pipelines.report_run(*runs, out=tmp_path / "two.html", figures=tmp_path / "figures")
    assert "Both runs are identical in everything compared." in (tmp_path / "two.html").read_text(encoding="utf-8")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == set(found.figures)
    with pytest.raises(InputError, match="give `out` too"):
        pipelines.report_run(runs[0], figures=tmp_path / "more")


@pytest.mark.slow
def test_a_config_object_does_as_well(lived: tuple[Path, dict[str, Any]]) -> None:
    config = pipelines.load_config(lived[0] / "words.yaml")
    assert pipelines.lint_run(config).plain == pipelines.lint_run(str(lived[0] / "words.yaml")).plain
    told, again = (pipelines.plan_run(given).record for given in (config, lived[0] / "words.yaml"))
    for name in ("time", "memory"):  # of this machine at that moment
        told.pop(name), again.pop(name)
    assert told == again
    assert isinstance(config, pipelines.RunConfig)


def test_every_name_is_on_the_page_and_has_types() -> None:
    assert dir(pipelines) == sorted(pipelines.__all__)
    for name in pipelines.__all__:
        found = getattr(pipelines, name)
        assert f"`{name}" in PAGE
        assert found.__doc__
        if inspect.isfunction(found):
            signature = inspect.signature(found)
            assert signature.return_annotation is not inspect.Signature.empty
            assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values())
    assert set(pipelines._HOME) == set(pipelines.__all__)
    public = {n for n, one in vars(notebook).items() if getattr(one, "__module__", "") == notebook.__name__}
    assert {n for n in public if not n.startswith("_")} - {"PlanReport"} <= set(pipelines.__all__)


def test_an_unknown_name_lists_what_is_there() -> None:
    with pytest.raises(AttributeError, match=r"it offers Comparison, Run, .*, verify_run$"):
        _ = pipelines.nothing


def test_no_name_is_that_of_a_module() -> None:
    """Importing a submodule binds its name in the package, over any function of the same name."""
    modules = {path.stem for path in (ROOT / "pipelines").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not modules & set(pipelines.__all__)


def test_importing_pipelines_imports_nothing_else() -> None:
    heavy = "[m for m in sys.modules if m in ('pyarrow', 'numpy', 'pydantic', 'distributed', 'ember')]"
    script = f"import sys, pipelines; print(pipelines.__ember__, {heavy})"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout.strip() == "0.1.0 []"
