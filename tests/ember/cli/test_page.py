"""docs/how-to/generate.md: its commands give what stands below them, and its Python runs."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ember
from tests.foundry.tiny import tiny_llama

PAGE = Path(__file__).parents[3] / "docs/how-to/generate.md"
BLOCKS = re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("command", "expected"), BLOCKS, ids=range(len(BLOCKS)))
def test_a_command_gives_what_the_page_says(command: str, expected: str) -> None:
    whole = command.replace("ember ", f"{sys.executable} -m ember ", 1)
    done = subprocess.run(whole, shell=True, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == expected


def test_there_are_commands() -> None:
    assert len(BLOCKS) == 7


def test_the_python_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out == names["made"].text == " وزن فَاعَلَ من ر د د؟ رَادَّ"
    chat = {"tokenizer.chat_template": "{{ messages[0].content }}<|end|>"}
    model = ember.open(tiny_llama(tmp_path / "chat.gguf", metadata=chat))
    assert (
        names["ask"](model, "hi")
        == model.generate(tokens=model.tokenizer.encode("hi<|end|>", parse_special=True).ids).text
    )
