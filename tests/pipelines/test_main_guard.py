import subprocess
import sys
import time
from pathlib import Path

from tests.faults.rig import ROOT, prompts, write_config

UNGUARDED = """
import sys
sys.path.insert(0, {root!r})
import pipelines
from ember.errors import EmberError
try:
    print(pipelines.run({config!r}, workers=2).status)
except EmberError as error:
    sys.exit(f"error: {{error}}")
"""


def run_script(path: Path, text: str) -> "subprocess.CompletedProcess[str]":
    path.write_text(text)
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=100, cwd=path.parent, check=False
    )


def test_a_script_without_main_guard_gets_one_sentence_at_once(tmp_path: Path) -> None:
    """P19."""
    config = write_config(tmp_path, prompts(8))
    began = time.monotonic()
    done = run_script(tmp_path / "script.py", UNGUARDED.format(root=str(ROOT), config=str(config)))
    assert time.monotonic() - began < 30
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert 'put the call behind `if __name__ == "__main__":`' in done.stderr
    assert f"{tmp_path / 'script.py'}:7" in done.stderr


def test_a_script_with_main_guard_runs(tmp_path: Path) -> None:
    config = write_config(tmp_path, prompts(8))
    body = UNGUARDED.format(root=str(ROOT), config=str(config)).strip().splitlines()
    head, call = body[:4], body[4:]
    text = "\n".join([*head, 'if __name__ == "__main__":', *(f"    {line}" for line in call)])
    done = run_script(tmp_path / "script.py", text)
    assert (done.returncode, done.stdout.strip()) == (0, "complete"), done.stderr


def test_a_function_in_a_guarded_script_runs_too(tmp_path: Path) -> None:
    config = write_config(tmp_path, prompts(8))
    text = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import pipelines

def main():
    print(pipelines.run({str(config)!r}, workers=1).status)

if "__main__" == __name__ and True:
    main()
"""
    done = run_script(tmp_path / "script.py", text)
    assert (done.returncode, done.stdout.strip()) == (0, "complete"), done.stderr
