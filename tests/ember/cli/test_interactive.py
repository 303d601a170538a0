"""A session at a terminal of its own, and over a pipe: keys, history, Ctrl-C and Ctrl-D, text as it is."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import ember
from ember.cli.conversation import StoppedAnswerError
from ember.cli.generate import generate
from ember.cli.interactive import Brake
from ember.tokenizer import load_tokenizer
from tests.foundry.terminal import CTRL_C, CTRL_D, ENTER, UP, Terminal, plain
from tests.foundry.tiny import tiny_llama

NANO = "builtin:sarf-nano"
KTB = "اسم الفاعل من الجذر ك ت ب:"
TEXTS = {
    "diacritics": "كَتَّبَ الإِسْلَامُ",
    "tatweel": "كـــتـــاب",
    "lam-alef": "لا ﻻ لأ لإ لآ",
    "emoji": "👩🏽‍🚀 ❤️ 🇸🇦",
    "decomposed": "e\u0301 ا\u0653 آ",
    "mixed": "abc أبجد 123 ١٢٣ (x) [ي]",
    "marks": "a\u200fb\u200ec\u2067d\u2069",
}


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {"EMBER_CACHE_DIR": str(tmp_path / "cache")}


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers take as long as anybody wants to wait."""
    path = tmp_path_factory.mktemp("endless") / "m.gguf"
    return tiny_llama(path, seed=3, n_layers=2, context=60_000, metadata={"tokenizer.ggml.eos_token_id": None})


@pytest.fixture
def screen(cache: dict[str, str]) -> Iterator[Terminal]:
    with Terminal("generate", NANO, "--interactive", "--json", "--route", "reference", environment=cache) as opened:
        opened.wait_for("> ")
        yield opened


def answer(screen: Terminal) -> dict[str, object]:
    """The record that comes next."""
    came = screen.wait_for("}\r\n")
    found: dict[str, object] = json.loads(came[came.index(b'{"prompt": ') :])
    screen.wait_for("> ")
    return found


def test_what_is_typed_is_shown_and_read_as_it_is(screen: Terminal) -> None:
    for text in TEXTS.values():
        screen.press(text, ENTER)
        shown = screen.wait_for("\n")
        assert text.encode() in plain(shown)
        assert answer(screen)["prompt"] == text
    assert screen.leave(CTRL_D) == 0


@pytest.mark.parametrize("named", ["C", "en_US.UTF-8"])
def test_a_locale_that_is_none_does_not_change_what_is_typed(cache: dict[str, str], named: str) -> None:
    """`C` everywhere, and the usual one of a remote terminal where it is not installed."""
    arguments = ("generate", NANO, "--interactive", "--json", "--route", "reference")
    with Terminal(*arguments, environment=cache | {"LC_ALL": named}) as screen:
        screen.wait_for("> ")
        screen.press("كَتَبَx", b"\x7f", ENTER)  # the last letter is taken back
        screen.wait_for("\n")
        assert answer(screen)["prompt"] == "كَتَبَ"
        assert screen.leave(CTRL_D) == 0


def test_answers_stream_and_are_those_of_a_single_call(cache: dict[str, str]) -> None:
    expected = ember.open(NANO, route="reference").generate(KTB, max_tokens=32).text
    with Terminal("generate", NANO, "--interactive", "--route", "reference", environment=cache) as screen:
        assert b"Ctrl-C ends an answer, Ctrl-D the session" in screen.wait_for("> ")
        screen.press(KTB, ENTER)
        assert plain(screen.wait_for("\n> ")) == f"{KTB}\n{expected}\n> ".encode()
        screen.press(ENTER)  # an empty line is no prompt
        assert plain(screen.wait_for("> ")) == b"\n> "
        assert screen.leave(CTRL_D) == 0
        assert b"Traceback" not in screen.seen


def test_lines_come_back_in_the_next_session(cache: dict[str, str]) -> None:
    arguments = ("generate", NANO, "--interactive", "--json", "--route", "reference")
    for session in [[(KTB, KTB), ("abc", "abc")], [(UP + UP, KTB), (UP + b"d", KTB + "d"), (UP, KTB + "d")]]:
        with Terminal(*arguments, environment=cache) as screen:
            screen.wait_for("> ")
            for keys, prompt in session:
                screen.press(keys, ENTER)
                assert answer(screen)["prompt"] == prompt
            assert screen.leave(CTRL_D) == 0
    history = Path(cache["EMBER_CACHE_DIR"]) / "history"  # a line that repeats the one before it is kept once
    assert history.read_text(encoding="utf-8").splitlines() == [KTB, "abc", KTB, KTB + "d"]
    assert history.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_drops_the_line_that_is_being_typed(screen: Terminal) -> None:
    screen.press("abc")
    screen.wait_for("abc")
    time.sleep(0.3)  # Python's readline misses a signal that comes while it takes in a key
    screen.press(CTRL_C)
    screen.wait_for("> ")
    screen.press("x", ENTER)
    assert answer(screen)["prompt"] == "x"
    assert screen.leave(CTRL_D) == 0


def test_ctrl_c_ends_an_answer_and_nothing_else(endless: Path, cache: dict[str, str]) -> None:
    opened = ember.open(endless, route="reference")
    beginnings = {text: opened.generate(text, max_tokens=40, stop_at_eos=False).text for text in ("a", "b")}
    arguments = ("generate", str(endless), "--interactive", "--max-tokens", "50000", "--route", "reference")
    with Terminal(*arguments, environment=cache) as screen:
        screen.wait_for("> ")
        for text in ("a", "b", "a"):
            screen.press(text, ENTER)
            came = screen.wait_for(typed(beginnings[text])[-30:])
            screen.press(CTRL_C)
            came += screen.wait_for("> ", timeout=20)
            assert typed(beginnings[text]) in came
        assert screen.leave(CTRL_D) == 0
        assert b"Traceback" not in screen.seen


def typed(text: str) -> bytes:
    """What a terminal gets for a text."""
    return text.encode().replace(b"\n", b"\r\n")


def test_an_interrupted_answer_has_a_record(endless: Path, cache: dict[str, str]) -> None:
    arguments = ("generate", str(endless), "--interactive", "--json", "--max-tokens", "50000", "--route", "reference")
    with Terminal(*arguments, environment=cache) as screen:
        screen.wait_for("> ")
        screen.press("a", ENTER)
        screen.wait_for("\n")
        time.sleep(1)  # records are shown whole: nothing says that the answer has begun
        os.kill(screen.process.pid, signal.SIGINT)
        found = answer(screen)
        assert found["stopped"] == "interrupted"
        opened = ember.open(endless, route="reference")
        ids = found["token_ids"]
        assert isinstance(ids, list)
        assert ids == opened.generate("a", max_tokens=len(ids)).token_ids
        assert screen.leave(CTRL_D) == 0


def test_ctrl_c_ends_a_single_call(endless: Path, cache: dict[str, str]) -> None:
    arguments = ("generate", str(endless), "a", "--max-tokens", "50000", "--route", "reference")
    with Terminal(*arguments, environment=cache) as screen:
        screen.wait_for(typed(ember.open(endless, route="reference").generate("a", max_tokens=20).text)[-8:])
        assert screen.leave(CTRL_C) == 130
        assert screen.seen.endswith(b"\r\ninterrupted\r\n")
        assert b"Traceback" not in screen.seen


def test_a_second_ctrl_c_ends_the_program() -> None:
    with Brake() as brake:
        brake.check()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(StoppedAnswerError):
            brake.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_stays_ignored_where_it_was() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Brake() as brake:
            os.kill(os.getpid(), signal.SIGINT)
            brake.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_is_one_line_and_the_session_goes_on(cache: dict[str, str]) -> None:
    arguments = ("generate", NANO, "--interactive", "--max-tokens", "250", "--route", "reference")
    with Terminal(*arguments, environment=cache) as screen:
        screen.wait_for("> ")
        screen.press("ا ب ت ث ج ح خ", ENTER)
        assert b"error: prompt 0 has " in screen.wait_for("> ")
        screen.press("a", ENTER)
        assert b"error" not in screen.wait_for("> ")
        assert screen.leave(CTRL_D) == 0


# -- over a pipe


def piped(given: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ember", "generate", NANO, "--interactive", "--route", "reference", *arguments]
    return subprocess.run(command, input=given, capture_output=True, timeout=120, check=False)


def test_a_pipe_has_answers_and_nothing_else() -> None:
    expected = ember.open(NANO, route="reference").generate(KTB, max_tokens=32).text
    done = piped(f"{KTB}\n\n{KTB}".encode())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{expected}\n{expected}\n".encode(), b"")


def test_records_over_a_pipe_hold_the_lines_as_they_are() -> None:
    lines = [*TEXTS.values(), " spaces around ", "/new", "\ttab\r"]
    done = piped("\n".join(lines).encode(), "--json", "--max-tokens", "1")
    assert [json.loads(one)["prompt"] for one in done.stdout.decode().split("\n")[:-1]] == lines


def test_the_first_error_over_a_pipe_ends_it() -> None:
    done = piped(b"a\nb\xff\nc\n", "--max-tokens", "1")
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == (
        b"error: standard input: line 2: byte 1, 0xFF, is not UTF-8 (invalid start byte); "
        b"convert the text to UTF-8 first\n"
    )


def test_a_closed_standard_input_is_one_line() -> None:
    done = subprocess.run(
        f"{sys.executable} -m ember generate {NANO} --interactive <&-", shell=True, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --interactive reads its prompts from standard input, which is closed")


# -- conversations

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "chat.gguf", seed=5, context=512, metadata={"tokenizer.chat_template": CHAT})


def test_a_conversation_remembers_what_was_said(chat: Path) -> None:
    arguments = [str(chat), "--interactive", "--chat", "--system", "S", "--json", "--max-tokens", "3"]
    done = CliRunner().invoke(generate, arguments, input="كتب\n/new\nz", catch_exceptions=False)
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert first["prompt"] == "<system>S<user>كتب<assistant>"
    assert second["prompt"] == f"<system>S<user>كتب<assistant>{first['text']}<user>/new<assistant>"
    assert third["prompt"] == second["prompt"] + second["text"] + "<user>z<assistant>"
    tokenizer = load_tokenizer(chat)
    ids = tokenizer.encode(first["prompt"], parse_special=True).ids
    assert first["token_ids"] == ember.open(chat).generate(tokens=ids, max_tokens=3).token_ids


def test_new_begins_a_conversation_anew_at_the_terminal(chat: Path, cache: dict[str, str]) -> None:
    arguments = (
        "generate",
        str(chat),
        "--interactive",
        "--chat",
        "--json",
        "--max-tokens",
        "2",
        "--route",
        "reference",
    )
    with Terminal(*arguments, environment=cache) as screen:
        assert b"/new begins a new conversation" in screen.wait_for("> ")
        screen.press("a", ENTER)
        assert answer(screen)["prompt"] == "<user>a<assistant>"
        screen.press("/new", ENTER)
        screen.wait_for("> ")
        screen.press("b<|end|>", ENTER)
        assert b"'<|end|>', spelt out in the text, will be read as" in screen.wait_for("conversation\r\n")
        assert answer(screen)["prompt"] == "<user>b<|end|><assistant>"
        assert screen.leave(CTRL_D) == 0
