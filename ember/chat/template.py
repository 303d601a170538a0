"""A file's chat template: found, rendered under limits, and turned into token ids."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ember.errors import EmberError, InputError, ModelError
from ember.gguf import GGUFFile
from ember.tokenizer import Tokenizer

KEY: Final = "tokenizer.chat_template"
SANDBOX: Final = Path(__file__).with_name("sandbox.py")
SECONDS: Final = 5
"""Processor time that a template may take; those in use take a few milliseconds, starting the process 0.1 s."""
PATIENCE: Final = 60
"""Seconds by the clock: only where the machine is so busy that the process gets no processor time."""
MEMORY: Final = 512 << 20
"""Bytes of address space of the process."""
LONGEST: Final = 4 << 20
"""Characters that a template may write: some contexts of a hundred thousand tokens."""

Message = Mapping[str, str]
"""`role` (`system`, `user` or `assistant`) and `content`."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The Jinja source that a file carries, and the names that it may use."""

    origin: str
    """The file, for messages."""
    source: str
    variables: Mapping[str, str]
    """`bos_token` and `eos_token` as the file spells them, where it names them."""

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """Return the conversation as one text, up to where the assistant speaks next.

        Raises InputError where the template refuses the conversation, ModelError where it cannot be rendered: wrong
        Jinja, something that the sandbox forbids, or more time, memory or text than a template may take.
        """
        request = {
            "template": self.source,
            "messages": [_checked(index, message) for index, message in enumerate(messages)],
            "variables": dict(self.variables),
            "add_generation_prompt": add_generation_prompt,
            "limits": {"seconds": SECONDS, "bytes": MEMORY, "characters": LONGEST},
        }
        answer = self._answer(_run(json.dumps(request)))
        if "refused" in answer:
            raise InputError(f"{self.origin}: {KEY}: the template refuses this conversation: {answer['refused']}")
        if "failed" in answer:
            raise self._failed(answer["failed"])
        return str(answer["text"])

    def _answer(self, done: "subprocess.CompletedProcess[bytes] | None") -> dict[str, Any]:
        if done is None:
            raise self._failed(f"it was not done after {PATIENCE} seconds")
        if done.returncode == -signal.SIGXCPU:
            raise self._failed(f"it takes more than {SECONDS} seconds")
        if done.returncode < 0:
            raise self._failed(f"its process was ended by signal {-done.returncode}")
        if done.returncode > 0:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise EmberError(f"the process that renders chat templates failed: {last}; is jinja2 installed in order?")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _failed(self, why: str) -> ModelError:
        return ModelError(
            f"{self.origin}: {KEY}: the template cannot be rendered: {why}; give a plain prompt, or token ids that "
            "were put together otherwise"
        )


def read_template(file: GGUFFile, tokenizer: Tokenizer) -> ChatTemplate:
    """Return the chat template of a file, without running it. Raises InputError where the file has none."""
    source = file.metadata.get(KEY)
    if not isinstance(source, str) or not source:
        found = "absent" if KEY not in file.metadata else f"found {type(source).__name__} {source!r:.40}"
        raise InputError(
            f"{file.path}: {KEY}: {found}, expected a chat template; this is no chat model, or was converted without "
            "it: give a plain prompt"
        )
    special = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    named = {name: tokenizer.spelling(token) for name, token in special.items() if token is not None}
    return ChatTemplate(str(file.path), source, named)


def encode_chat(tokenizer: Tokenizer, rendered: str) -> list[int]:
    """Token ids of a rendered conversation: control tokens spelt out in it are those tokens.

    A BOS is added where the file asks for one and the template has not written it: there is never a second one.
    """
    return tokenizer.encode(rendered, parse_special=True).ids


def _checked(index: int, message: Message) -> dict[str, str]:
    wrong = {"role", "content"} ^ set(message) or {key for key, value in message.items() if not isinstance(value, str)}
    if wrong:
        raise InputError(
            f"message {index}: expected texts under `role` and `content`; wrong: {', '.join(sorted(wrong))}"
        )
    return dict(message)


def _run(request: str) -> "subprocess.CompletedProcess[bytes] | None":
    try:
        # -P: the folder of the script, with its general names, is not where its imports come from
        command = [sys.executable, "-P", str(SANDBOX)]
        return subprocess.run(command, input=request.encode(), capture_output=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise EmberError(f"the process that renders chat templates could not be started: {error}") from error
