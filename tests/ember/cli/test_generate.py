"""`ember generate`: text as it comes, draws that can be repeated, stop texts, experiments, conversations, errors."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

import ember
from ember.cli.main import cli, run
from tests.foundry import commands
from tests.foundry.tiny import tiny_llama

NANO = "builtin:sarf-nano"
KTB = "اسم الفاعل من الجذر ك ت ب:"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

call = partial(commands.call, command="generate")
record = partial(commands.record, command="generate")


def test_the_text_alone_goes_to_standard_output(capfdbinary) -> None:
    assert call(capfdbinary, NANO, KTB) == (0, " كَاتِب\n", "")


def test_the_record_says_all(capfdbinary) -> None:
    found = record(capfdbinary, NANO, KTB)
    made = ember.open(NANO).generate(KTB, max_tokens=32)
    assert found == {
        "prompt": KTB, "token_ids": made.token_ids, "text": " كَاتِب", "stopped": "stop", "seed": None, "findings": [],
    }  # fmt: skip


def test_text_comes_while_the_model_is_at_work(tmp_path: Path) -> None:
    """The first bytes are there long before the last ones, and all of them are the whole text."""
    path = tiny_llama(tmp_path / "m.gguf", seed=3, context=60_000, metadata={"tokenizer.ggml.eos_token_id": None})
    command = [
        sys.executable,
        "-m",
        "ember",
        "generate",
        str(path),
        "a",
        "--route",
        "reference",
        "--max-tokens",
        "500",
    ]
    came = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 65536):
            came.append((time.monotonic(), piece))
    assert len(came) > 20
    assert came[-1][0] - came[0][0] > 0.05
    expected = ember.open(path, route="reference").generate("a", max_tokens=500).text
    assert b"".join(piece for _, piece in came).decode() == expected + "\n"


def test_a_seed_repeats_the_draws_and_is_told_where_none_is_given(capfdbinary) -> None:
    options = (NANO, "ما", "--temperature", "1.2", "--max-tokens", "24")
    status, text, told = call(capfdbinary, *options)
    assert status == 0
    assert told.startswith("note: seed ")
    seed = told.split()[-1]
    assert call(capfdbinary, *options, "--seed", seed) == (0, text, "")
    found = record(capfdbinary, *options, "--seed", seed)
    assert (found["text"] + "\n", found["seed"]) == (text, int(seed))
    texts = {record(capfdbinary, *options, "--seed", str(one))["text"] for one in range(8)}
    assert len(texts) > 4


def test_one_candidate_leaves_nothing_to_draw(capfdbinary) -> None:
    greedy = record(capfdbinary, NANO, KTB)["token_ids"]
    for option in (("--top-k", "1"), ("--top-p", "0")):
        drawn = record(capfdbinary, NANO, KTB, "--temperature", "2", "--seed", "1", *option)
        assert drawn["token_ids"] == greedy


def test_an_experiment_that_does_not_fit_the_model_is_refused_before_anything_runs(capfdbinary, tmp_path) -> None:
    out = tmp_path / "out"
    for command, more in (("generate", ()), ("capture", ("--out", f"{out}.npz")), ("trace", ("--out", f"{out}.jsonl"))):
        words = (command, NANO, KTB, "--experiment", "zero_layer_output:7:mlp", *more)
        assert run(lambda words=words: cli.main([*words], standalone_mode=False)) != 0
        told, err = (text.decode() for text in capfdbinary.readouterr())
        assert told == ""
        assert "experiment 'zero_layer_output' does not fit the model: layer 7 does not exist: the model has 5" in err
    assert list(tmp_path.iterdir()) == []


def test_stop_texts_end_the_answer_and_are_not_shown(capfdbinary) -> None:
    assert call(capfdbinary, NANO, KTB, "--stop", "تِ", "--stop", "zzz") == (0, " كَا\n", "")
    found = record(capfdbinary, NANO, KTB, "--stop", "تِ")
    assert (found["text"], found["stopped"]) == (" كَا", "text")


def test_experiments_act_and_their_findings_are_in_the_record(capfdbinary) -> None:
    plain = record(capfdbinary, NANO, KTB)
    found = record(capfdbinary, NANO, KTB, "--experiment", "activation_stats", "--max-tokens", "2")
    assert found["token_ids"] == plain["token_ids"][:2]
    assert [one["experiment"] for one in found["findings"]] == ["activation_stats"]
    assert found["findings"][0]["results"]["prompt_tokens"] == 12
    changed = record(capfdbinary, NANO, KTB, "--experiment", "zero_layer_output:0:mlp")
    assert changed["token_ids"] != plain["token_ids"]
    status, out, err = call(capfdbinary, NANO, KTB, "--experiment", "activation_stats")
    assert (status, out, err) == (0, " كَاتِب\n", "note: findings of activation_stats: --json prints them\n")


def test_a_failing_experiment_is_one_line_after_what_was_said(capfdbinary, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from ember.hooks import Experiment\n"
        "class Fails(Experiment):\n"
        "    name = 'my-experiment'\n"
        "    def after_mlp(self, ctx, contribution):\n"
        "        if ctx.execution.start_position == 14 and ctx.layer == 1:\n"
        "            raise ValueError('expected a finite activation')\n"
    )
    status, out, err = call(capfdbinary, NANO, KTB, "--experiment", f"{tmp_path}/mine.py:Fails")
    assert (status, out) == (1, " كَ\n")
    assert err == (
        "error: experiment 'my-experiment' failed in after_mlp (phase=decode, layer=1): expected a finite activation\n"
    )


@pytest.mark.parametrize(
    "found",
    [
        "float('nan')",
        "np.array([np.inf])",
        "{1}",
        "b'x'",
        "chr(0xD800)",
        "self",
        "functools.reduce(lambda a, _: [a], range(9**5))",
    ],
)
def test_findings_that_json_cannot_say_are_one_line(capfdbinary, tmp_path: Path, found: str) -> None:
    (tmp_path / "mine.py").write_text(
        "import functools\nimport numpy as np\nfrom ember.hooks import Experiment\n"
        f"class Odd(Experiment):\n    name = 'odd'\n    def results(self):\n        return {found}\n"
    )
    status, out, err = call(capfdbinary, NANO, KTB, "--experiment", f"{tmp_path}/mine.py:Odd", "--json")
    assert (status, out) == (2, "")
    assert err.startswith("error: an experiment's results() are not plain data for JSON: ")
    assert err.count("\n") == 1


def test_numbers_and_arrays_of_numpy_are_findings_as_in_a_run(capfdbinary, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom ember.hooks import Experiment\nclass Kept(Experiment):\n    name = 'kept'\n"
        "    def results(self):\n        return {'norm': np.float32(0.5), 'ids': np.arange(3)}\n"
    )
    found = record(capfdbinary, NANO, KTB, "--experiment", f"{tmp_path}/mine.py:Kept")
    assert found["findings"] == [{"experiment": "kept", "results": {"norm": 0.5, "ids": [0, 1, 2]}}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((KTB, "--temperature", "-1"), "temperature -1.0: expected a number of at least 0"),
        ((KTB, "--temperature", "nan"), "temperature nan"),
        ((KTB, "--top-k", "-1"), "top_k -1"),
        ((KTB, "--top-p", "1.5"), "top_p 1.5"),
        ((KTB, "--stop", ""), "stop"),
        ((KTB, "--experiment", "nothing"), "experiment 'nothing' is unknown"),
        ((KTB, "--system", "x"), "--system is part of a conversation"),
        ((KTB, "--chat"), "tokenizer.chat_template: absent"),
        ((KTB, "--interactive"), "leave PROMPT out"),
        ((), "PROMPT is missing"),
        (("--interactive", "--experiment", "activation_stats"), "--interactive answers many"),
        (("",), "is empty"),
        ((KTB, "--max-tokens", "1000"), "the model's context is 256"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_status_2(capfdbinary, arguments, said) -> None:
    status, out, err = call(capfdbinary, NANO, *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", [("--seed", "-1"), ("--seed", "18446744073709551616"), ("--max-tokens", "0")])
def test_numbers_out_of_range_are_refused_by_name(capfdbinary, option) -> None:
    status, out, err = call(capfdbinary, NANO, KTB, *option)
    assert (status, out) == (2, "")
    assert f"'{option[0]}'" in err


# -- conversations


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "chat.gguf", seed=5, context=512, metadata={"tokenizer.chat_template": CHATML})


def test_the_template_is_used_only_when_asked_for(capfdbinary, chat: Path) -> None:
    plain = record(capfdbinary, str(chat), "hi", "--max-tokens", "4")
    assert plain["prompt"] == "hi"
    asked = record(capfdbinary, str(chat), "hi", "--max-tokens", "4", "--chat", "--system", "Be brief.")
    assert asked["prompt"] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert asked["token_ids"] != plain["token_ids"]


def test_a_template_that_fails_is_one_line(capfdbinary, tmp_path: Path) -> None:
    for source, status, said in [
        ("{{ raise_exception('no system message') }}", 2, "the template refuses this conversation: no system message"),
        ("{{ ''.__class__.__mro__ }}", 1, "cannot be rendered: SecurityError"),
    ]:
        path = tiny_llama(tmp_path / "chat.gguf", seed=5, metadata={"tokenizer.chat_template": source})
        found = call(capfdbinary, str(path), "hi", "--chat")
        assert found[:2] == (status, "")
        assert said in found[2]
        assert found[2].count("\n") == 1
        assert call(capfdbinary, str(path), "hi", "--max-tokens", "1")[0] == 0


def test_control_tokens_in_the_text_are_pointed_out(capfdbinary, chat: Path) -> None:
    status, _, err = call(capfdbinary, str(chat), "a<|end|>b", "--chat", "--max-tokens", "1")
    assert (status, err) == (
        0, "note: '<|end|>', spelt out in the text, will be read as the control tokens of a conversation\n",
    )  # fmt: skip
    assert call(capfdbinary, str(chat), "a<|end|>b", "--max-tokens", "1")[2] == ""


@pytest.mark.realmodel
def test_smollm2_answers_in_its_own_template(smollm2: Path) -> None:
    arguments = ["generate", str(smollm2), "What is the capital of France?", "--chat", "--max-tokens", "12", "--json"]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    found = json.loads(done.stdout)
    assert found["prompt"].endswith(
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "Paris" in found["text"]
    assert found["stopped"] == "stop"
