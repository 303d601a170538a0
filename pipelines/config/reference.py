"""The reference page of the configuration, made from the models themselves."""

import json
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pipelines.config.messages import models_in
from pipelines.config.models import RunConfig

HEAD: Final = """# Keys of a configuration

One YAML file is one run. `ember pipeline schema --markdown` prints this page; without that option it prints a JSON
Schema, with which editors complete and check configs. Unknown keys are errors, and values are never converted: `"3"`
is not 3. `models: [...]` in place of `model` runs the same over several models, each in a directory of its own.
"""
REQUIRED: Final = "*needed*"


def reference_page() -> str:
    """Return the page as Markdown: one table for each section, in the order of the keys."""
    return "\n".join([HEAD, *(_table(title, model) for title, model in _sections("", "", RunConfig, set()))])


def _sections(
    path: str, variant: str, model: type[BaseModel], seen: set[type[BaseModel]]
) -> Iterator[tuple[str, type[BaseModel]]]:
    """Give every model once, with a title made of the key under which it stands first."""
    if model in seen:
        return
    seen.add(model)
    yield (f"`{path}`{variant}" if path else "Top level"), model
    for name, field in model.model_fields.items():
        listed = "[]" if str(field.annotation).startswith("tuple[") else ""
        below = f"{path}.{field.alias or name}{listed}".removeprefix(".")
        inner = list(models_in(field.annotation))
        for one in inner:
            yield from _sections(below, f" with `{_mark(one)}`" if len(inner) > 1 else "", one, seen)


def _mark(model: type[BaseModel]) -> str:
    """Name the key that tells one kind of a section from the others: the first that is needed."""
    return next(name for name, field in model.model_fields.items() if field.is_required())


def _table(title: str, model: type[BaseModel]) -> str:
    fields = model.model_fields.items()
    rows = [f"| `{field.alias or name}` | {_default(field)} | {_meaning(field)} |" for name, field in fields]
    told = " ".join((model.__doc__ or "").split())
    return "\n".join([f"## {title}", "", told, "", "| key | default | |", "|---|---|---|", *rows, ""])


def _meaning(field: FieldInfo) -> str:
    inner = list(models_in(field.annotation))
    told = field.description or ("One of several kinds, below." if len(inner) > 1 else inner[0].__doc__ or "")
    return " ".join(told.split()).replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "default" in extra:
        return f"`{extra['default']}`"
    if field.is_required():
        return REQUIRED
    value: Any = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or isinstance(value, BaseModel) or value in (None, ""):
        return ""
    if value in ((), {}):
        return "none"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"
