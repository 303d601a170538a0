"""What all configuration models share: strictness, and types whose errors say what would do.

A leaf. Values are never coerced: "3" is not an integer, 1 is not true.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

MAX_SHOWN: Final = 60
MAX_LISTED: Final = 8
BOOLEAN_WORDS: Final = {"no": "false", "off": "false", "n": "false", "yes": "true", "on": "true", "y": "true"}


class Settings(BaseModel):
    """Base of every section: unknown keys are errors, values are frozen and keep the type they were written in."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )


def refuse(message: str, *at: str | int) -> PydanticCustomError:
    """Build an error whose text is `message`, shown to the user as it stands.

    `at` is the key that it concerns, from the section that is being checked on.
    """
    return PydanticCustomError("ember", "{message}", {"message": message, "at": at})


def show(given: Any, source: str | None = None) -> str:
    """Write a value as messages show it: as it was spelt (`source`) if known, collections by kind, long texts cut."""
    if isinstance(given, dict) and len(given) != 1:
        return f"a mapping of {len(given)} keys" if given else "an empty mapping"
    if isinstance(given, (list, tuple)) and not 0 < len(given) <= MAX_LISTED:
        return f"a list of {len(given)}" if given else "an empty list"
    if given is None:
        return "nothing"
    shown = repr(given) if isinstance(given, str) else source or repr(given)
    return shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + "…"


def closest(word: str, known: list[str]) -> str:
    """Return `; did you mean 'x'?`, or nothing when no known word is near."""
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _input_path(given: str, info: ValidationInfo) -> str:
    if not given or "\0" in given:
        raise refuse(f"found {show(given)}, expected the path of a file")
    if given.startswith("hf://"):
        raise refuse(f"found {show(given)}: hf:// is not supported yet; download the .gguf file and give its path")
    if given.startswith("builtin:"):
        return given
    base = (info.context or {}).get("base")
    return str(base / given) if isinstance(base, Path) else given


InputPath = Annotated[str, AfterValidator(_input_path)]
"""A file that is read: `builtin:NAME`, or a path relative to the config file (made absolute on loading)."""


def _as_tuple(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


Listed = BeforeValidator(_as_tuple)
"""Lets a YAML list fill a tuple field, which a strict model would refuse."""


@dataclass(frozen=True, slots=True)
class Shorthand:
    """Marks a model field where plain text stands for a mapping whose only key is `key`."""

    key: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Expand before the model validates."""
        return core_schema.no_info_before_validator_function(self._expand, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Say that text will do as well."""
        return {"anyOf": [{"type": "string"}, handler(schema)]}

    def _expand(self, given: Any) -> Any:
        if isinstance(given, str):
            return {self.key: given}
        if isinstance(given, (dict, Settings)):
            return given
        quoted = "; put it in quotes" if isinstance(given, (bool, int, float)) else ""
        hint = f"text, or a mapping with `{self.key}`{quoted}"
        raise PydanticCustomError("text_or_mapping", "{hint}", {"hint": hint})


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
"""A name that is safe in file names, column values and messages."""

Word = Annotated[str, Field(pattern=r"^\w[\w. -]*$", max_length=100)]
"""A name in any script: of a label, a pattern, a template."""
