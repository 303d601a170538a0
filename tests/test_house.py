"""The house rules that a machine can check: sizes, import tables, lazy imports, what ships."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

import ember
from ember.cli.main import VERBS
from ember.models import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FILE, LONGEST_FUNCTION, MEDIAN_FUNCTION = 500, 80, 16
HEAVY = ("numpy", "numba", "distributed", "pyarrow", "pydantic", "tokenizers", "rich", "yaml", "threadpoolctl")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def functions(path: Path) -> list[tuple[str, int]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [(f"{path.relative_to(ROOT)}:{node.name}", (node.end_lineno or 0) - node.lineno + 1) for node in found]


@pytest.mark.parametrize("package", ["ember", "pipelines"])
def test_files_and_functions_stay_small(package: str) -> None:
    files = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources(package)
    }
    assert {name: lines for name, lines in files.items() if lines > LONGEST_FILE} == {}
    lengths = [one for path in sources(package) for one in functions(path)]
    assert [one for one in lengths if one[1] > LONGEST_FUNCTION] == []
    assert median(length for _, length in lengths) <= MEDIAN_FUNCTION


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_family_of_the_table_imports_and_has_the_same_nouns(architecture: str) -> None:
    family = importlib.import_module(FAMILIES[architecture])
    assert architecture == family.ARCHITECTURE
    nouns = (
        "Config",
        "read_config",
        "bind_weights",
        "embed",
        "layer",
        "final_norm",
        "logits",
        "origins",
        "head_origins",
    )
    assert [noun for noun in nouns if not hasattr(family, noun)] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_of_the_table_imports(verb: str) -> None:
    module, attribute = VERBS[verb][0].split(":")
    assert getattr(importlib.import_module(module), attribute).name == verb


def test_importing_ember_and_asking_for_help_import_nothing_heavy() -> None:
    program = (
        "import sys, ember, click\n"
        "from ember.cli.main import cli\n"
        "click.Context(cli).get_help()\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_one_module_imports_each_library_of_the_factory() -> None:
    """Pyarrow and Dask stay in the rooms that own them."""
    homes = {"distributed": "cluster.py crew.py watchdog.py", "matplotlib": "charts.py heat_map.py"}
    for library, allowed in homes.items():
        users = {path.name for path in sources("pipelines") if imports(path, library)}
        assert users <= set(allowed.split()), (library, users)
    assert [path for path in sources("ember") if imports(path, "distributed") or imports(path, "pyarrow")] == []


def imports(path: Path, library: str) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        if any(name.split(".")[0] == library for name in names):
            return True
    return False


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs"])
def test_every_link_of_the_pages_leads_somewhere(page: str) -> None:
    pages = [ROOT / page] if page.endswith(".md") else sorted((ROOT / page).rglob("*.md"))
    broken = []
    for one in pages:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", one.read_text(encoding="utf-8")):
            if "://" not in target and not (one.parent / target).exists():
                broken.append(f"{one.relative_to(ROOT)}: {target}")
    assert broken == []


def test_the_version_is_one() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{ember.__version__}"' in text
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{ember.__version__}]" in changelog
