"""The stimulus files of Ember's predecessor: JSON with a word's root, pattern and several prompts an entry.

    [{"root": "كتب", "pattern": "فاعل", "prompts": {"bare": "كاتب", "cloze": "اسم الفاعل من كتب هو"},
      "expected_surface": "كاتب", "prompt_contracts": {"cloze": {"reveals": ["root"]}}}, …]

or an object whose `stimuli` is such a list. The predecessor left no specification, so this is how they are read here:

- every prompt becomes a stimulus, called `root.pattern.prompt` (or `id.prompt`), its template the prompt's name;
- `expected_surface` is the expected continuation of each of them;
- `root`, `pattern` and every other text, number or truth value becomes a label;
- a contract belongs to the prompt of its name. Its `reveals` lists labels that the prompt gives away, `target` is the
  text that a span captures (`occurrence`, which of several), `expected` replaces expected_surface; any other text,
  number or truth value in it becomes the label `contract_NAME`. A list alone stands for its `reveals`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pipelines.errors import ConfigError
from pipelines.settings import closest, show
from pipelines.stimuli.columns import text_of
from pipelines.stimuli.drafts import Draft, fail
from pipelines.stimuli.readers import Written, decoded, no_constant, refuse_half_characters, unique_pairs

KNOWN: Final = ("id", "prompts", "expected_surface", "prompt_contracts")
LIST: Final = "stimuli"
_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder(object_pairs_hook=unique_pairs, parse_constant=no_constant, parse_float=Written)


def read_prompt_sets(path: Path, reveals: tuple[str, ...]) -> list[Draft]:
    """Read all prompts, entry by entry; `reveals` holds for each. Raises ConfigError naming file and line."""
    text = decoded(path)
    drafts: list[Draft] = []
    problems: list[str] = []
    for line, entry in _entries(path, text):
        try:
            drafts += _drafts(f"{path}:{line}", entry, reveals)
        except ConfigError as error:
            problems.append(f"{path}:{line}: {error}")
    fail(problems)
    if not drafts:
        raise ConfigError(f"{path}: no stimuli in this file, expected at least one entry with prompts")
    return drafts


def _entries(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Entries with the lines on which they begin."""
    at = _skip(text, 0)
    try:
        if text[at : at + 1] == "{":
            at = _list_inside(path, text, at)
        elif text[at : at + 1] != "[":
            raise ConfigError(f"{path}:1: found no list, expected [ … ] of entries, or an object with `{LIST}`")
        at = _skip(text, at + 1)
        while text[at : at + 1] != "]":
            line = text.count("\n", 0, at) + 1
            try:
                entry, at = _DECODER.raw_decode(text, at)
            except ConfigError as error:
                raise ConfigError(f"{path}:{line}: {error}") from None
            yield line, entry
            at = _skip(text, at)
            if text[at : at + 1] not in (",", "]"):
                raise json.JSONDecodeError("expected a comma or ]", text, at)
            at = _skip(text, at + 1) if text[at] == "," else at
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not valid JSON at column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: not usable JSON: a number of thousands of digits, or nested too deep") from None


def _list_inside(path: Path, text: str, at: int) -> int:
    """Return where the list under the key `stimuli` begins; the whole text is checked to be JSON first."""
    json.loads(text)
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if key == LIST and text[at : at + 1] == "[":
            return at
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
    raise ConfigError(f"{path}:1: found an object without a list `{LIST}`, expected one, or a list alone")


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _drafts(where: str, entry: Any, reveals: tuple[str, ...]) -> list[Draft]:
    if not isinstance(entry, dict):
        raise ConfigError(f"found {show(entry)}, expected an object with root, pattern and prompts")
    refuse_half_characters(entry)
    if "prompts" not in entry:
        raise ConfigError("found an entry without `prompts`, expected name: text; rows of a table are read from .jsonl")
    prompts, contracts = entry.get("prompts"), entry.get("prompt_contracts") or {}
    if not isinstance(prompts, dict) or not prompts or not all(isinstance(text, str) for text in prompts.values()):
        raise ConfigError(f"prompts: found {show(prompts)}, expected name: text")
    if not isinstance(contracts, dict):
        raise ConfigError(f"prompt_contracts: found {show(contracts)}, expected a contract by prompt name")
    if strange := [name for name in contracts if name not in prompts]:
        raise ConfigError(f"prompt_contracts: {strange[0]!r} is no prompt here{closest(strange[0], list(prompts))}")
    labels = {key: text_of(value, key) for key, value in entry.items() if key not in KNOWN and value is not None}
    stem = _stem(entry, labels)
    expected = _optional(entry, "expected_surface")
    return [
        _draft(where, f"{stem}.{name}", name, text, labels, reveals, _contract(contracts.get(name)), expected)
        for name, text in prompts.items()
    ]


def _stem(entry: dict[str, Any], labels: dict[str, str]) -> str:
    named = entry.get("id")
    if named is not None:
        return text_of(named, "id")
    if "root" not in labels or "pattern" not in labels:
        raise ConfigError("found an entry without `id`, expected `root` and `pattern` then, to call its prompts by")
    return f"{labels['root']}.{labels['pattern']}"


def _contract(given: Any) -> dict[str, Any]:
    found = {} if given is None else {"reveals": given} if isinstance(given, list) else given
    if not isinstance(found, dict):
        raise ConfigError(f"prompt_contracts: found {show(given)}, expected a mapping, or a list of labels")
    told = found.get("reveals") or []
    if not isinstance(told, list) or not all(isinstance(name, str) for name in told):
        raise ConfigError(f"prompt_contracts.reveals: found {show(told)}, expected a list of labels")
    return found


def _draft(
    where: str,
    name: str,
    template: str,
    prompt: str,
    labels: dict[str, str],
    reveals: tuple[str, ...],
    contract: dict[str, Any],
    expected: str | None,
) -> Draft:
    own = ("reveals", "target", "occurrence", "expected")
    more = {f"contract_{k}": text_of(v, k) for k, v in contract.items() if k not in own and v is not None}
    occurrence = contract.get("occurrence")
    if occurrence is not None and (not isinstance(occurrence, int) or occurrence is True or occurrence < 1):
        raise ConfigError(f"prompt_contracts.occurrence: found {show(occurrence)}, expected a count from 1")
    return Draft(
        where=where,
        id=name,
        prompt=prompt,
        labels=labels | more,
        template=template,
        reveals=tuple(dict.fromkeys((*reveals, *(contract.get("reveals") or ())))),
        target=_optional(contract, "target"),
        occurrence=occurrence,
        expected=_optional(contract, "expected") if contract.get("expected") is not None else expected,
    )


def _optional(found: dict[str, Any], key: str) -> str | None:
    value = found.get(key)
    return None if value is None or value == "" else text_of(value, key)
