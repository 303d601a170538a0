"""`ember trace` as it is called: journals, their origin, summaries, and refusals of one line."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ember
from ember.cli.main import cli, run
from ember.trace import read_journal
from tests.foundry.tiny import tiny_llama

FAILING = """
from ember.hooks import Experiment

class Fails(Experiment):
    name = "fails"

    def after_logits(self, ctx, logits):
        raise ValueError("enough")

class Odd(Experiment):
    name = "odd"
    mutates = False

    def results(self):
        return {1, 2}

class Endless(Odd):
    def results(self):
        return float("nan")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf", seed=3)


@pytest.fixture
def command(capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        status = run(lambda: cli.main(list(arguments), standalone_mode=False))
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def trace(model: Path, out: Path, *more: str) -> list[str]:
    return ["trace", str(model), "abc", "--out", str(out), "--threads", "1", *more]


def test_a_prefill_alone(path, tmp_path, command) -> None:
    out = tmp_path / "t.jsonl"
    status, said, _ = command(*trace(path, out, "--max-tokens", "0"))
    events = list(read_journal(out))
    assert (status, said) == (0, f"{3 + 17 * 3} events\nwritten to {out}\n")
    assert len(events) == 3 + 17 * 3
    assert {(event.phase, event.values) for event in events} == {("prefill", None)}


@pytest.mark.parametrize("route", ["reference", "fast"])
def test_a_continuation_with_values_and_its_origin(path, tmp_path, command, route) -> None:
    out = tmp_path / "t.jsonl"
    status, said, _ = command(*trace(path, out, "--max-tokens", "3", "--values", "summary", "--route", route, "--json"))
    told, origin = json.loads(said), json.loads((tmp_path / "t.jsonl.json").read_text())
    model = ember.open(path, route=route, threads=1)
    made = model.generate("abc", max_tokens=3)
    prompt = model.tokenizer.encode("abc").ids
    assert status == 0
    assert told == {
        "out": str(out), "origin": f"{out}.json", "events": len(made.token_ids) * 54, "prompt_ids": prompt,
        "token_ids": made.token_ids, "stopped": made.stopped,
    }  # fmt: skip
    assert {name: origin[name] for name in ("prompt", "prompt_ids", "token_ids", "stopped", "events")} == {
        "prompt": "abc", "prompt_ids": prompt, "token_ids": made.token_ids, "stopped": made.stopped,
        "events": told["events"],
    }  # fmt: skip
    assert origin["model_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (origin["numerics"]["route"], origin["peak"]["threads"]) == (route, 1)
    told = [event.values for event in read_journal(out)]
    assert told == [event.values for event in model.trace("abc", max_tokens=3, values=True).events]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["t.jsonl", "t.jsonl.json"]


def test_experiments_take_part_and_change_no_event(path, tmp_path, command) -> None:
    plain, watched = tmp_path / "plain.jsonl", tmp_path / "watched.jsonl"
    assert command(*trace(path, plain, "--values", "summary"))[0] == 0
    assert command(*trace(path, watched, "--values", "summary", "--experiment", "activation_stats"))[0] == 0
    one, other = ([(e.name, e.layer, e.values) for e in read_journal(file)] for file in (plain, watched))
    assert one == other
    origin = json.loads((tmp_path / "watched.jsonl.json").read_text())
    assert origin["experiments"] == [{"spec": "activation_stats"}]
    assert [found["experiment"] for found in origin["findings"]] == ["activation_stats"]


def test_a_summary_for_people_and_for_machines(path, tmp_path, command) -> None:
    out = tmp_path / "t.jsonl"
    command(*trace(path, out, "--max-tokens", "2"))
    status, said, _ = command("trace", "--summary", str(out))
    lines = said.splitlines()
    assert status == 0
    assert lines[0].split() == [
        "phase", "kind", "events", "ms", "time", "MB", "GB/s", "GFLOP", "GFLOP/s", "of", "peak",
    ]  # fmt: skip
    assert lines[-1].endswith("1 threads, measured by the process that wrote the trace")
    kinds = {"matmul", "attention", "norm", "embedding", "rope", "cache", "add", "activation+multiply", "total"}
    assert {line.split()[1] for line in lines[1:-1]} == kinds
    status, said, _ = command("trace", "--summary", str(out), "--json")
    found = json.loads(said)
    assert found["peak_measured"] == "with the trace"
    events = list(read_journal(out))
    assert sum(row["events"] for row in found["rows"]) == len(events)
    assert sum(row["duration_ns"] for row in found["rows"]) == sum(event.duration_ns for event in events)
    for phase in ("prefill", "decode"):
        mine = [row for row in found["rows"] if row["phase"] == phase]
        assert sum(row["share_of_time"] for row in mine) == pytest.approx(1)
    row = next(row for row in found["rows"] if (row["phase"], row["op_kind"]) == ("prefill", "matmul"))
    assert row["flops_per_second"] == pytest.approx(row["estimated_flops"] * 1e9 / row["duration_ns"])
    assert row["share_of_peak"] == pytest.approx(row["flops_per_second"] / found["peak"]["flops_per_second"])


@pytest.mark.parametrize("beside", [None, "{}", "[]", "nothing", '{"peak": {"flops_per_second": 0, "threads": 1}}'])
def test_a_journal_without_its_origin_is_summed_up_beside_this_process(path, tmp_path, command, beside) -> None:
    out = tmp_path / "t.jsonl"
    command(*trace(path, out))
    origin = tmp_path / "t.jsonl.json"
    origin.unlink()
    if beside is not None:
        origin.write_text(beside)
    status, said, _ = command("trace", "--summary", str(out), "--threads", "1")
    assert status == 0
    assert "1 threads, measured now" in said


def test_a_journal_may_go_to_a_pipe(path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ember", *trace(path, Path("/dev/stdout"))],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()][-1] == "lm_head"
    assert done.stderr == "54 events\nwritten to /dev/stdout\n"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "MODEL is missing; expected ember trace MODEL PROMPT --out FILE"),
        (["MODEL"], 2, "PROMPT is missing"),
        (["MODEL", "abc"], 2, "--out FILE is missing"),
        (["MODEL", "abc", "--out", "OUT/no/t.jsonl"], 2, "OUT/no/t.jsonl: cannot be written: No such file"),
        (["MODEL", "abc", "--out", "OUT"], 2, "OUT: cannot be written: Is a directory"),
        (["OUT/none.gguf", "abc", "--out", "OUT/t.jsonl"], 1, "OUT/none.gguf: file: does not exist"),
        (["MODEL", "", "--out", "OUT/t.jsonl"], 2, "is empty"),
        (["MODEL", "abc", "--out", "OUT/t.jsonl", "--experiment", "stats"], 2, "experiment 'stats' is unknown"),
        (["MODEL", "abc", "--out", "OUT/t.jsonl", "--experiment", "OUT/e.py:Fails"], 1,
         "experiment 'fails' failed in after_logits (phase=prefill): enough"),
        (["MODEL", "abc", "--out", "OUT/t.jsonl", "--experiment", "OUT/e.py:Odd"], 2,
         "an experiment's results() are not plain data for JSON"),
        (["MODEL", "abc", "--out", "OUT/t.jsonl", "--experiment", "OUT/e.py:Endless"], 2, "not plain data for JSON"),
        (["MODEL", "abc", "--out", "OUT/t.jsonl", "--max-tokens", "600"], 2, "the model's context is 512"),
        (["--summary", "OUT/none.jsonl"], 2, "OUT/none.jsonl: cannot be read: No such file"),
        (["--summary", "OUT/e.py"], 2, "OUT/e.py: line 1: expected one JSON object"),
        (["--summary", "OUT/empty"], 2, "OUT/empty: no events"),
        (["MODEL", "--summary", "OUT/empty"], 2, "it sums up a journal that is there"),
    ],
)  # fmt: skip
def test_refusals_are_one_line_and_leave_nothing(path, tmp_path, command, arguments, status, said) -> None:
    (tmp_path / "e.py").write_text(FAILING)
    (tmp_path / "empty").write_text("")
    before = sorted(tmp_path.iterdir())
    given = [one.replace("MODEL", str(path)).replace("OUT", str(tmp_path)) for one in arguments]
    found, out, err = command("trace", *given)
    assert (found, out) == (status, "")
    assert said.replace("OUT", str(tmp_path)) in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("arguments", [["--max-tokens", "-1"], ["--values", "all"], ["--threads", "0"]])
def test_bad_options_are_bad_usage(path, tmp_path, command, arguments) -> None:
    status, _, err = command(*trace(path, tmp_path / "t.jsonl", *arguments))
    assert status == 2
    assert arguments[0] in err
    assert list(tmp_path.iterdir()) == []
