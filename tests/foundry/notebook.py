"""Execute a notebook's code cells in order, without Jupyter, and keep what they print.

    python -m tests.foundry.notebook docs/tutorials/a-run-in-python.ipynb       # run in a copy of the project's root

Cells share one namespace, as in Jupyter; only printed text counts as output.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def executed(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the notebook with the outputs of a run in `folder`."""
    names: dict[str, Any] = {"__name__": "__notebook__"}
    cells = []
    before = Path.cwd()
    os.chdir(folder)
    try:
        for number, cell in enumerate(notebook["cells"]):
            if cell["cell_type"] != "code":
                cells.append(cell)
                continue
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile("".join(cell["source"]), f"<cell {number}>", "exec"), names)
            lines = said.getvalue().splitlines(keepends=True)
            outputs = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
            cells.append(cell | {"outputs": outputs})
    finally:
        os.chdir(before)
    return notebook | {"cells": cells}


def written(notebook: dict[str, Any]) -> str:
    """Return the text of a notebook's file."""
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def prepare(folder: Path) -> None:
    """Put the configs where the notebook expects them."""
    (folder / "configs").mkdir()
    for path in (ROOT / "configs").glob("*.yaml"):
        (folder / "configs" / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place))
        found = executed(json.loads(target.read_text(encoding="utf-8")), Path(place))
    target.write_text(written(found), encoding="utf-8")
