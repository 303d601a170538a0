"""Turning validation errors into lines a user can act on: place, key, what was found, what would do."""

from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipelines.config.types import boolean_hint
from pipelines.settings import closest, show
from pipelines.yaml_core import Document, Mark, Problem

WANTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "dict_type": "a mapping (key: value)",
    "tuple_type": "a list",
    "model_type": "a mapping (key: value)",
    "none_required": "nothing",
}


def describe(error: ValidationError, document: Document, model: type[BaseModel]) -> list[Problem]:
    """Return one problem for each of `error`'s details."""
    details = error.errors(include_url=False)
    return [_problem(detail, document, model) for detail in details if not _follows(detail, details)]


def _follows(detail: ErrorDetails, others: list[ErrorDetails]) -> bool:
    """Whether a list is only too short because its entries are wrong, which is said already."""
    loc = detail["loc"]
    inner = (other["loc"] for other in others if len(other["loc"]) > len(loc))
    return detail["type"] == "too_short" and any(deeper[: len(loc)] == loc for deeper in inner)


def _problem(detail: ErrorDetails, document: Document, model: type[BaseModel]) -> Problem:
    path = tuple(part for part in detail["loc"] if not (isinstance(part, str) and part.startswith("<")))
    path += detail.get("ctx", {}).get("at", ())
    if path and path[-1] == "[key]":
        path = path[:-1]
        mark, said = document.key_marks.get(path, document.mark(path)), _bad_name(path[-1])
    elif detail["type"] == "extra_forbidden":
        mark = document.key_marks.get(path, document.mark(path))
        said = f"unknown key{_known(path, detail['loc'], model)}"
    else:
        mark = document.mark(path)
        said = _said(detail, mark, str(path[-1]) if path else "")
    key = ".".join(_printable(part) for part in path)
    return Problem(mark.line, f"{key}: {said}" if key else said)


def _printable(part: str | int) -> str:
    """Write a key so that no escape sequence in it reaches the terminal."""
    return str(part) if str(part).isprintable() else repr(part)


def _bad_name(key: Any) -> str:
    return f"found {key!r} as a name, expected letters, digits, `_`, `-`, `.` and spaces, a letter or digit first"


def _said(detail: ErrorDetails, mark: Mark, key: str) -> str:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "ember":
        return context["message"] if "message" in context else f"found {show(given, mark.source)}, {detail['msg']}"
    if kind == "missing":
        return "missing: this key is required"
    return f"found {show(given, mark.source)}, expected {_wanted(kind, context, detail)}{_hint(kind, given, context)}"


def _wanted(kind: str, context: dict[str, Any], detail: ErrorDetails) -> str:
    if kind == "text_or_mapping":
        return str(context["hint"])
    if kind in WANTED:
        return WANTED[kind]
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "").replace(" or ", ", ")
    if kind == "string_pattern_mismatch":
        return f"text that matches {context['pattern']}"
    if kind == "too_short":
        return f"at least {context['min_length']} of them"
    bounds = {"greater_than_equal": "at least", "less_than_equal": "at most", "string_too_long": "at most"}
    if kind in bounds:
        limit = next(iter(context.values()))
        return f"{bounds[kind]} {limit}" + (" characters" if kind.startswith("string") else "")
    return "text that is not empty" if kind == "string_too_short" else detail["msg"]


def _hint(kind: str, given: Any, context: dict[str, Any]) -> str:
    if kind == "bool_type":
        return boolean_hint(given)
    if kind == "literal_error" and isinstance(given, str):
        return closest(given, [word.strip(" '") for word in context["expected"].replace(" or ", ",").split(",")])
    if kind == "string_type" and isinstance(given, (bool, int, float)):
        return f" (YAML reads this as a {'boolean' if isinstance(given, bool) else 'number'}: put it in quotes)"
    return ""


def _known(path: tuple[str | int, ...], loc: tuple[str | int, ...], model: type[BaseModel]) -> str:
    names = sorted(_fields_at(loc[:-1], model) | ({"models"} if len(loc) == 1 else set()))
    return f"{closest(str(path[-1]), names)}; known here: {', '.join(names)}" if names else ""


def _fields_at(loc: tuple[str | int, ...], model: type[BaseModel]) -> set[str]:
    """Keys that the model at `loc` knows, found by walking the annotations down from `model`."""
    candidates: list[Any] = [model]
    for part in loc:
        if isinstance(part, str) and part.startswith("<"):
            candidates = [c for c in candidates if part[1:-1] in c.model_fields]
        elif isinstance(part, str):
            inner = [c.model_fields[name] for c in candidates for name in c.model_fields if _alias(c, name) == part]
            candidates = [found for info in inner for found in models_in(info.annotation)] or candidates
    return {_alias(c, name) for c in candidates for name in c.model_fields}


def _alias(model: type[BaseModel], name: str) -> str:
    return model.model_fields[name].alias or name


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models that an annotation mentions, however deep inside unions, tuples and dicts."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from models_in(argument)
