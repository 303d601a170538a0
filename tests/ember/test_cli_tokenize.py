"""`ember tokenize`: ids, pieces and bytes for people and machines; input that cannot be served in one line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ember.cli.main import cli, run
from ember.cli.tokenize import tokenize
from ember.tokenizer import load_tokenizer
from tests.foundry.tokenizer_files import CONTROL, USER_DEFINED, byte_level
from tests.foundry.tokenizer_json import write_byte_level
from tests.foundry.vocab import byte_characters

KAF, TEH = ("".join(byte_characters()[byte] for byte in letter.encode()) for letter in "كت")
FILE = byte_level(
    [f"Ġ {KAF[0]}", f"{TEH[0]} {TEH[1]}", "a b"], extras=[("<|begin|>", CONTROL), ("<tool>", USER_DEFINED)], words=()
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(FILE.but(bos_token_id=FILE.id_of("<|begin|>")).write(tmp_path / "v.gguf"))


def call(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(tokenize, arguments, input=stdin, catch_exceptions=False)


def record(*arguments: str, stdin: bytes | None = None) -> dict[str, Any]:
    done = call(*arguments, "--json", stdin=stdin)
    assert done.exit_code == 0
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_pieces_are_text_or_bytes_and_stand_last(path: str) -> None:
    shown = call(path, " كت").stdout.splitlines()

    assert [line.split() for line in shown] == [
        ["index", "id", "bytes", "piece"],
        ["0", str(FILE.id_of("Ġ" + KAF[0])), "0-2", "b'", r"\xd9'"],
        ["1", str(FILE.id_of(KAF[1])), "2-3", r"b'\x83'"],
        ["2", str(FILE.id_of(TEH)), "3-5", "'ت'"],
        ["3", "tokens;", "BOS", "not", "added", "(by", "default)"],
    ]


def test_a_span_that_cuts_tokens_is_expanded(path: str) -> None:
    expanded = call(path, " كتab", "--span", "1:5").stdout.splitlines()
    exact = call(path, " كتab", "--span", "3:5").stdout.splitlines()

    assert [line[0] for line in expanded[1:5]] == [">", ">", ">", " "]
    assert "bytes 1-5: tokens 0 to 2, boundary expanded" in expanded
    assert "bytes 3-5: tokens 2 to 2, boundary exact" in exact


def test_json_holds_everything(path: str) -> None:
    found = record(path, " كت", "--span", "1:3", "--bos")
    tokenizer = load_tokenizer(path).with_add_bos(True)
    encoding = tokenizer.encode(" كت")

    assert found["ids"] == encoding.ids
    assert found["byte_offsets"] == [list(one) for one in encoding.byte_offsets] == [[0, 0], [0, 2], [2, 3], [3, 5]]
    assert found["pieces"] == ["<|begin|>", None, None, "ت"]
    assert bytes.fromhex("".join(found["bytes"][1:])).decode() == found["text"] == " كت"
    assert found["special"] == [True, False, False, False]
    assert found["span"] == {"start": 1, "end": 3, "first_token": 1, "last_token": 2, "boundary": "expanded"}
    assert found["tokenizer"] == tokenizer.record()


def test_bos_and_special_tokens_on_request(path: str) -> None:
    begin = FILE.id_of("<|begin|>")

    assert record(path, "ab")["ids"] == [FILE.id_of("ab")]
    assert record(path, "ab", "--bos")["ids"] == [begin, FILE.id_of("ab")]
    assert record(path, "ab", "--no-bos")["tokenizer"]["add_bos_from"] == "override"
    assert record(path, "<|begin|><tool>", "--parse-special")["ids"] == [begin, FILE.id_of("<tool>")]
    assert "special '<|begin|>'" in call(path, "ab", "--bos").stdout


def test_spelt_out_control_tokens_are_warned_of(path: str) -> None:
    done = call(path, "x<|begin|>")

    assert done.stderr == ("warning: control tokens are spelt out and taken literally (--parse-special): '<|begin|>'\n")
    assert record(path, "x<|begin|>")["control_spellings"] == ["<|begin|>"]
    assert call(path, "x<|begin|>", "--parse-special").stderr == ""


def test_compare_with_a_tokenizer_json(path: str, tmp_path: Path) -> None:
    same = write_byte_level(FILE, tmp_path / "same.json")
    done = call(path, "ab", "--compare", str(same))
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-2:] == [
        f"compared with {same}: the 1 ids are equal",
        "vocabulary: every token that both have is the same",
    ]


def test_compare_shows_the_first_difference_and_exits_with_1(path: str, tmp_path: Path) -> None:
    merges = ["Ġ a", f"{TEH[0]} {TEH[1]}", "a b"]
    sibling = byte_level(merges, extras=[("<|begin|>", CONTROL), ("<other>", USER_DEFINED)], words=())
    other = write_byte_level(sibling, tmp_path / "other.json")
    done = call(path, "x ab", "--compare", str(other))
    at = 256

    assert done.exit_code == 1
    assert done.stdout.splitlines()[-2:] == [
        f"compared with {other}: first difference at token 1, byte 1: {FILE.id_of('Ġ')} 'Ġ' here, {at} 'Ġa' there",
        f"vocabulary: 2 tokens are spelt differently, the first {at}: {FILE.tokens[at]!r} here, 'Ġa' there: "
        "another model's file?",
    ]
    found = json.loads(call(path, "x ab", "--compare", str(other), "--json").stdout)["comparison"]
    assert found["ids"]["theirs"] == {"id": at, "spelling": "Ġa"}
    assert found["vocabulary"]["count"] == 2


def test_standard_input_is_taken_as_it_is(path: str) -> None:
    data = "\ufeffكَ\r\n\u200f\u0085\n".encode()
    found = record(path, "-", stdin=data)

    assert found["text"].encode() == data
    assert bytes.fromhex("".join(found["bytes"])) == data
    assert record(path, "-", stdin=b"")["ids"] == []


def test_what_the_terminal_would_act_on_is_escaped(path: str) -> None:
    shown = call(path, "\x1b[31m\u202e[bold]").stdout

    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert r"'\x1b'" in shown


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (("{path}", "-"), b"ab\xff", "standard input: byte 2, 0xFF, is not UTF-8"),
        (("{path}", "-"), "ك".encode()[:1], "standard input: byte 0, 0xD9, is not UTF-8 (unexpected end of data)"),
        (("{path}", "a\udcffb"), None, "text: a lone surrogate, U+DCFF, at character 1"),
        (("{path}", "ab", "--span", "1"), None, "--span '1': expected two numbers of bytes"),
        (("{path}", "ab", "--span", "-1:2"), None, "--span '-1:2': expected two numbers"),
        (("{path}", "ab", "--span", "1:1"), None, "--span 1:1: expected START < END within the text's 2 bytes"),
        (("{path}", "ab", "--span", "0:3"), None, "--span 0:3: expected START < END within the text's 2 bytes"),
        (("hf://a/b", "ab"), None, "fetching is not supported"),
        (("{path}", "ab", "--compare", "none.json"), None, "none.json: is no file; a Hugging Face tokenizer.json"),
        (("{path}", "ab", "--compare", "{path}"), None, "is no tokenizer.json that this version of `tokenizers` reads"),
    ],
)
def test_bad_input_is_one_line(
    path: str, arguments: tuple[str, ...], stdin: bytes | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [one.format(path=path) for one in arguments]
    statuses = []
    with CliRunner().isolation(input=stdin) as streams:
        statuses.append(run(lambda: cli.main(["tokenize", *given], standalone_mode=False)))
        error = streams[1].getvalue().decode(errors="surrogateescape")

    assert statuses == [2]
    assert error.startswith("error: ")
    assert says in error
    assert error.count("\n") == 1


def test_a_vocabulary_that_is_not_supported_exits_with_1(tmp_path: Path) -> None:
    path = FILE.but(pre="none-such").write(tmp_path / "v.gguf")
    done = subprocess.run(
        [sys.executable, "-m", "ember", "tokenize", path, "كتب"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {path}: tokenizer.ggml.pre: 'none-such' is not supported; supported: ")
    assert done.stderr.count("\n") == 1
