import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli.main import VERBS, pipeline
from tests.faults.rig import ROOT, prompts, run_cli, write_config


def ember(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ember", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


def test_every_verb_of_the_table_is_a_command_with_an_example() -> None:
    for verb in ("run", "plan", "lint", "status", "reproduce", "export"):
        assert verb in VERBS
        shown = CliRunner().invoke(pipeline, [verb, "--help"])
        assert shown.exit_code == 0
        assert "Usage:" in shown.output
        assert re.search(r"Examples?:", shown.output), verb


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pipelines.cli.main import pipeline; from click.testing import CliRunner; "
        "assert CliRunner().invoke(pipeline, ['--help']).exit_code == 0; "
        "print([m for m in ('distributed', 'pyarrow', 'pydantic', 'numba', 'numpy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_plan_in_words_and_for_machines(tmp_path: Path) -> None:
    config = write_config(tmp_path, prompts(12))
    told = ember("pipeline", "plan", str(config))
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("run: 12 prompts of ")
    record = json.loads(ember("pipeline", "plan", str(config), "--json").stdout)
    assert record["prompts"] == 12
    assert record["memory"]["weights"] == "resident"  # a tiny model fits
    assert "weights   resident: " in told.stdout
    assert not (tmp_path / "run").exists()


def test_a_sweep_runs_one_model_after_the_other(tmp_path: Path) -> None:
    config = write_config(tmp_path, prompts(4), model=None, models=["tiny.gguf", {"path": "copy.gguf"}])
    (tmp_path / "copy.gguf").write_bytes((tmp_path / "tiny.gguf").read_bytes())
    status, out, err = run_cli(config, "--serial", "--json")
    assert status == 0, err
    summaries = [json.loads(line) for line in out.splitlines()]
    assert [Path(s["directory"]).name for s in summaries] == ["tiny", "copy"]
    # The same file under another name: the same values.
    assert summaries[0]["semantic_hash"] == summaries[1]["semantic_hash"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("run", "absent.yaml"), 2, "absent.yaml"),
        (("plan", "absent.yaml"), 2, "absent.yaml"),
        (("status", "absent"), 2, "holds no run that Ember has begun"),
        (("run", "--workers", "0", "x.yaml"), 2, "0 is not in the range"),
        (("dance",), 2, "No such command"),
    ],
)
def test_bad_usage_is_one_message_and_status_2(
    tmp_path: Path, arguments: tuple[str, ...], status: int, message: str
) -> None:
    done = ember("pipeline", *arguments)
    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_last_lines_say_what_was_written_and_how_to_look_at_it(tmp_path: Path) -> None:
    config = write_config(tmp_path, prompts(12))
    status, out, err = run_cli(config, "--serial")
    assert status == 0, err
    first, second, *looks = out.splitlines()
    assert re.match(r"complete: 12 of 12 prompts, 282 token rows, \d\.\dx shared; .* tok/s$", first)
    assert re.match(rf"wrote \d files, [\d.]+ kB, and manifest\.json in {tmp_path / 'run'}$", second)
    assert looks[0] == "look at it:"
    assert "12 prompts, 282 token rows" in err
    status, out, _ = run_cli(config, "--serial")
    assert (status, out.splitlines()[0]) == (0, f"nothing to do: {tmp_path / 'run'} is complete (12 prompts)")


def test_a_second_look_is_quick(tmp_path: Path) -> None:
    config = write_config(tmp_path, prompts(12))
    assert run_cli(config, "--serial")[0] == 0
    began = time.monotonic()
    done = ember("pipeline", "status", str(tmp_path / "run"))
    assert time.monotonic() - began < 10
    assert done.stdout.splitlines()[:2] == [
        f"{tmp_path / 'run'}: complete",
        "prompts: 12 done, 0 failed, 0 pending, of 12 (3 units finished)",
    ]
