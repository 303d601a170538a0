"""A script that starts workers must keep its own work behind `if __name__ == "__main__":`.

Worker processes import the user's script again; without the guard each of them would start the run anew. That is
found by reading the script before any process is started.
"""

import ast
import multiprocessing
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from pipelines.errors import RunError

ADVICE: Final = (
    'put the call behind `if __name__ == "__main__":`, because worker processes import the script again; '
    "or run it with serial=True, which starts none"
)


def refuse_unguarded_script() -> None:
    """Raise RunError if the running script calls us from its top level without a main guard."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RunError(f"a worker process ran into a run of its own: {ADVICE}")
    frame = _script_frame()
    if frame is None:
        return
    path = Path(frame.f_code.co_filename)
    if path.is_file() and not _guarded(path, frame.f_lineno):
        raise RunError(f"{path}:{frame.f_lineno}: this script starts workers at its top level: {ADVICE}")


def _script_frame() -> FrameType | None:
    """Return the frame of the main script's top level if it is on the stack and workers would import it again."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name.rpartition(".")[2] == "__main__":
        return None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return frame
        frame = frame.f_back
    return None


def _guarded(path: Path, line: int) -> bool:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return True
    tests = [node for node in tree.body if isinstance(node, ast.If) and _asks_name(node.test)]
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in tests)


def _asks_name(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))
