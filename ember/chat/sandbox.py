"""The process that renders one chat template: a script of its own, which nothing of Ember imports.

It reads {template, messages, variables, limits} as JSON from standard input and writes {text}, {refused} or {failed}.
A sandbox keeps a template away from Python, but not from looping for ever or from filling the memory, which a process
can be held to. What templates may use is what Hugging Face's transformers gives them.
"""

import json
import resource
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

LONGEST_MESSAGE: Final = 300
"""Characters of an error that are passed on."""


class RefusedError(TemplateError):
    """The template itself says that it does not serve this conversation."""


class GenerationTag(Extension):
    """`{% generation %}`, with which templates mark an assistant's words for training: its body is text like any."""

    tags = {"generation"}  # noqa: RUF012 - the name and type that jinja2 asks for

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the body as a block that is printed."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

    def _said(self, caller: Macro) -> str:
        return str(caller())


class PlainNamespace(Namespace):
    """`namespace()` without the underscored names by which Python's own objects would be reached."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(_plain(name), value)


def _namespace(*pairs: Any, **named: Any) -> PlainNamespace:
    return PlainNamespace({_plain(name): value for name, value in dict(*pairs, **named).items()})


def _plain(name: str) -> str:
    if name.startswith("_"):
        raise TemplateError(f"a namespace cannot hold {name!r}")
    return name


def main() -> None:
    """Answer the one request on standard input."""
    request = json.load(sys.stdin)
    limits = request["limits"]
    _confine(limits["seconds"], limits["bytes"])
    try:
        answer = {"text": _render(request, limits["characters"])}
    except RefusedError as error:
        answer = {"refused": _one_line(error)}
    except MemoryError:
        answer = {"failed": f"it needs more than {limits['bytes'] >> 20} MiB of memory"}
    except RecursionError:
        answer = {"failed": "it calls itself without an end"}
    except Exception as error:  # a template may raise whatever Python can
        answer = {"failed": f"{type(error).__name__}: {_one_line(error)}"}
    json.dump(answer, sys.stdout)


def _confine(seconds: int, size: int) -> None:
    """Bound processor time and memory of this process, and take the writing of files away from it."""
    # at the lower limit of processor time a signal says which one it was, at the upper one nothing would
    _limit(resource.RLIMIT_CPU, seconds, seconds + 1)
    for kind, limit in ((resource.RLIMIT_AS, size), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        _limit(kind, limit, limit)


def _limit(kind: int, lower: int, upper: int) -> None:
    """Set the limits of a resource, or keep the upper one where it is tighter already: it cannot be raised."""
    _, given = resource.getrlimit(kind)
    if given != resource.RLIM_INFINITY:
        lower, upper = min(lower, given), min(upper, given)
    resource.setrlimit(kind, (lower, upper))


def _render(request: dict[str, Any], longest: int) -> str:
    template = _environment().from_string(request["template"])
    given = {"tools": None, "documents": None, "add_generation_prompt": request["add_generation_prompt"]}
    pieces = template.generate(messages=request["messages"], **given, **request["variables"])
    return "".join(_bounded(pieces, longest))


def _bounded(pieces: Iterator[str], longest: int) -> Iterator[str]:
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > longest:
            raise TemplateError(f"it writes more than {longest} characters")
        yield piece


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationTag]
    )
    functions: dict[str, Callable[..., Any]] = {
        "raise_exception": _refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "namespace": _namespace,
        "dict": lambda *pairs, **named: dict(*pairs, **named),
    }
    environment.globals.update(functions)
    environment.filters["tojson"] = _to_json
    return environment


def _refuse(message: object) -> NoReturn:
    raise RefusedError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates name or place these as they like
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Jinja's own filter writes HTML's entities."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _one_line(error: BaseException) -> str:
    """What an error says, without what a terminal would obey."""
    shown = "".join(character if character.isprintable() else " " for character in str(error)[:LONGEST_MESSAGE])
    return " ".join(shown.split()) or type(error).__name__


if __name__ == "__main__":
    main()
