"""A conversation at the terminal, line by line; or over a pipe, without anything that a program would have to skip.

What is typed goes to the model as it is, and what it writes to the terminal as it is: nothing is reordered, reshaped or
marked up, so that text from right to left is left to the terminal.
"""

import codecs
import contextlib
import json
import locale
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any, Final, TextIO

import click

from ember.cache_directory import cache_directory
from ember.cli import options
from ember.cli.conversation import Conversation, StoppedAnswerError, spelt_out
from ember.errors import EmberError, InputError

PROMPT: Final = "> "
FORGET: Final = "/new"
REMEMBERED: Final = 1000
"""Lines kept in the history."""


def converse(conversation: Conversation, *, as_json: bool) -> None:
    """Answer line after line until the input ends.

    At a terminal an error is shown and the next line awaited; over a pipe the first error ends everything, since what
    follows may build on what could not be answered.
    """
    if not (_at_terminal(sys.stdin) and _at_terminal(sys.stdout)):
        for line in _piped():
            _ask(conversation, line, as_json=as_json)
        return
    click.echo(_greeting(conversation), err=True)
    for line in _typed():
        try:
            _answer(conversation, line, as_json=as_json)
        except EmberError as error:
            click.echo(f"error: {error}", err=True)
        except Leave:
            raise
        except KeyboardInterrupt:  # pressed before the answer began: the line is dropped
            click.echo(err=True)


def _at_terminal(stream: TextIO | None) -> bool:
    """Tell whether a stream is a terminal; one that was closed before the program began is None."""
    return stream is not None and stream.isatty()


def _closed(stream: TextIO | None) -> bool:
    return stream is None or stream.closed


def _greeting(conversation: Conversation) -> str:
    what = f"{FORGET} begins a new conversation" if conversation.template else "every line is a prompt of its own"
    return f"Ctrl-C ends an answer, Ctrl-D the session; {what}."


def _answer(conversation: Conversation, line: str, *, as_json: bool) -> None:
    if conversation.template is not None:
        if line == FORGET:
            conversation.forget()
            return
        options.say_notes([note for note in [spelt_out(conversation.model, line)] if note])
    with Brake() as brake:
        _ask(conversation, line, brake, as_json=as_json)


def _ask(conversation: Conversation, line: str, brake: "Brake | None" = None, *, as_json: bool) -> None:
    with options.Line(shown=not as_json) as shown:

        def heard(piece: str) -> None:
            shown.add(piece)
            if brake:
                brake.check()

        answer = conversation.ask(line, heard)
    if as_json:
        options.say(json.dumps(answer.record(), ensure_ascii=False) + "\n")
    elif answer.seed_is_new:
        options.say_notes([f"seed {answer.seed}"])


class Leave(KeyboardInterrupt):
    """Ctrl-C pressed again while an answer was being ended."""


class Brake:
    """Ctrl-C while a model answers: once, and the answer ends after the token at hand; twice, and the program does.

    An exception from a signal could come anywhere, also while the engine moves its state from one token to the next.
    """

    def __init__(self) -> None:
        self._pressed = False

    def __enter__(self) -> "Brake":
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise StoppedAnswerError if Ctrl-C was pressed."""
        if self._pressed:
            raise StoppedAnswerError

    def _press(self, _signal: int, _frame: FrameType | None) -> None:
        if self._pressed:
            raise Leave
        self._pressed = True


# -- lines


def _piped() -> Iterator[str]:
    """Lines of standard input as they are; empty ones hold no prompt."""
    if _closed(sys.stdin):
        raise InputError("--interactive reads its prompts from standard input, which is closed: open or redirect it")
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            line = raw.removesuffix(b"\n").decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"standard input: line {number}: byte {error.start}, 0x{raw[error.start]:02X}, is not UTF-8 "
                f"({error.reason}); convert the text to UTF-8 first"
            ) from None
        if line:
            yield line


def _typed() -> Iterator[str]:
    """Lines typed at the terminal, with the history of earlier sessions."""
    history = History()
    while True:
        try:
            line = input(PROMPT)
        except KeyboardInterrupt:  # the line typed so far is dropped, as in a shell
            click.echo(err=True)
            continue
        except EOFError:
            click.echo(err=True)
            return
        except UnicodeDecodeError as error:
            click.echo(f"error: what was typed is not {error.encoding} ({error.reason}); nothing was sent", err=True)
            continue
        history.keep()
        if line:
            yield line


class History:
    """Lines typed in this and earlier sessions, for the arrow keys and Ctrl-R: a file that only its owner can read."""

    def __init__(self) -> None:
        self._readline: Any = _readline()
        self._file = _history_file()
        self._count = 0
        if self._readline is None or self._file is None:
            return
        self._readline.set_history_length(REMEMBERED)
        with contextlib.suppress(OSError):  # damaged or not readable: the session begins with none
            self._readline.read_history_file(str(self._file))
        self._count = self._readline.get_current_history_length()

    def keep(self) -> None:
        """Write the line just read to the file, unless it repeats the one before it."""
        if self._readline is None or self._file is None:
            return
        count = self._readline.get_current_history_length()
        if count > self._count:
            with contextlib.suppress(OSError):  # a full disk is no reason to end a conversation
                self._readline.append_history_file(count - self._count, str(self._file))
        self._count = count


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:  # some builds of Python have none; lines can then be typed but not edited
        return None
    _speak_utf8()
    return readline


def _speak_utf8() -> None:
    """Have readline take UTF-8 as Python does, where the locale is `C` or one that is not installed.

    There readline would take the bytes of an Arabic letter for keys pressed with Meta. It asks the environment for the
    locale each time it reads a line, so that is where it has to stand.
    """
    before = locale.setlocale(locale.LC_CTYPE)
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")
    known = codecs.lookup(locale.nl_langinfo(locale.CODESET)).name
    locale.setlocale(locale.LC_CTYPE, before)
    if sys.stdin.encoding.lower() == "utf-8" and known != "utf-8":
        os.environ["LC_ALL"] = "C.UTF-8"


def _history_file() -> Path | None:
    folder = cache_directory()
    if folder is None:
        return None
    path = folder / "history"
    try:
        path.touch(mode=0o600)
    except OSError:
        return None
    return path
