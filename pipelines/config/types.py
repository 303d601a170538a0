"""Field types of the configuration whose values have more than one shape, each with one plain error."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, GetCoreSchemaHandler, PlainValidator, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from ember.sites import SITES, SiteName
from pipelines.settings import BOOLEAN_WORDS, closest, refuse, show

UNITS: Final = {"B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}
LEAST_MEMORY: Final = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class NotYet:
    """Marks a field whose only values today are the empty ones (or those in `allowed`); others are refused by name."""

    what: str
    allowed: tuple[Any, ...] = (None, [], ())

    @classmethod
    def unless(cls, value: Any, what: str) -> "NotYet":
        """Refuse everything but `value`."""
        return cls(what, (value,))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check before the field's own schema does."""
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def _check(self, given: Any) -> Any:
        if given not in self.allowed:
            raise refuse(f"found {show(given)}: {self.what} will come with a later version; remove this key")
        return () if given == [] else given


def _add_bos(given: Any) -> Any:
    if given == "file" or isinstance(given, bool):
        return given
    raise refuse(f"found {show(given)}, expected file, true or false{boolean_hint(given)}")


def boolean_hint(given: Any) -> str:
    """Explain `no`, `yes` and their kin, which are text in YAML 1.2; empty for anything else."""
    word = BOOLEAN_WORDS.get(given.lower()) if isinstance(given, str) else None
    return f": YAML 1.2 reads {given} as text; write {word}" if word else ""


def _workers(given: Any) -> Any:
    if given == "auto" or (isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= 10_000):
        return given
    raise refuse(f"found {show(given)}, expected auto or a whole number from 1")


def _unit_rows(given: Any) -> Any:
    if given is None or given == "auto":
        return None
    if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= 2**24:
        return given
    raise refuse(f"found {show(given)}, expected auto or a number of token rows from 1 to {2**24}")


def _memory(given: Any) -> Any:
    if given == "auto":
        return given
    size = _bytes(given)
    if size is None:
        raise refuse(f"found {show(given)}, expected auto, a number of bytes, or a size such as 2GiB or 1500MB")
    if size < LEAST_MEMORY:
        raise refuse(
            f"found {show(given)}, expected at least 64MiB: a worker needs that much before it has done anything"
        )
    return size


def _bytes(given: Any) -> int | None:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    found = re.fullmatch(r"([0-9]{1,12})(\.[0-9]{1,6})? ?([KMGTkmgt]?i?B)", given) if isinstance(given, str) else None
    if found is None:
        return None
    unit = UNITS.get(found[3][0].upper() + found[3][1:])
    return round(float(found[1] + (found[2] or "")) * unit) if unit else None


def _scheduler(given: Any) -> Any:
    if isinstance(given, str) and (
        given in ("local", "serial") or re.fullmatch(r"(tcp|tls|ucx|wss?)://\S+", given) or given.endswith(".json")
    ):
        return given
    near = closest(given, ["local", "serial"]) if isinstance(given, str) else ""
    raise refuse(f"found {show(given)}, expected local, serial, tcp://host:port or a scheduler file (.json){near}")


def _site(given: Any) -> Any:
    if isinstance(given, str) and given in SITES:
        return given
    near = closest(given, list(SITES)) if isinstance(given, str) else ""
    raise refuse(f"found {show(given)}, expected one of {', '.join(SITES)}{near}")


_NATURAL: Final = {"type": "integer", "minimum": 1}
AddBos = Annotated[Literal["file"] | bool, BeforeValidator(_add_bos)]
Workers = Annotated[
    Literal["auto"] | int, PlainValidator(_workers), WithJsonSchema({"anyOf": [{"const": "auto"}, _NATURAL]})
]
UnitRows = Annotated[
    int | None,
    PlainValidator(_unit_rows),
    WithJsonSchema({"anyOf": [{"enum": ["auto", None]}, _NATURAL]}),
]
Memory = Annotated[
    Literal["auto"] | int,
    PlainValidator(_memory),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": LEAST_MEMORY}]}),
]
Scheduler = Annotated[str, BeforeValidator(_scheduler)]
SiteField = Annotated[SiteName, BeforeValidator(_site)]
