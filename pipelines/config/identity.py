"""What makes two runs the same run, and how a config is written down.

The identity holds every setting that decides values and nothing else: no paths (contents of model and stimulus files
are hashed on their own), no names, nothing of `run`, no output folder.
"""

import hashlib
import json
from typing import Any, Final

import yaml

from pipelines.config.models import RunConfig
from pipelines.yaml_core import resolve_plain

SECTIONS: Final = ("schema", "tokenizer", "stimuli", "hooks", "generate", "score", "engine")


def resolved(config: RunConfig) -> dict[str, Any]:
    """Return the whole config as plain values, defaults filled in, keys as in YAML."""
    plain: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    hooks = plain["hooks"]
    plain["hooks"] = {key: [_without_empty(one) for one in entries] for key, entries in hooks.items() if entries}
    return plain


def _without_empty(entry: dict[str, Any]) -> dict[str, Any]:
    """Leave out filters that select everything, and options that are none."""
    return {key: value for key, value in entry.items() if value != {}}


def identity(config: RunConfig) -> dict[str, Any]:
    """Return what decides the values of a run, as plain values with sorted keys.

    What is `auto` must have been settled before (`RunConfig.with_engine`): `auto` means something else elsewhere.
    """
    whole = resolved(config)
    found: dict[str, Any] = {section: whole.get(section) for section in SECTIONS}
    found["dtype"] = whole["output"]["dtype"]
    found["guard_positions"] = whole["guard"]["positions"]
    for setting in ("file", "allow_leaks"):
        found["stimuli"].pop(setting, None)
    _forget_places(found["hooks"])
    plain: dict[str, Any] = json.loads(canonical_json(found))
    return plain


def _forget_places(hooks: dict[str, Any]) -> None:
    """Take out where files and runs lie; the plan's hash of all hooks covers what they hold."""
    for one in hooks.get("intervene", ()):
        for kind in ("vector", "run"):
            if kind in one.get("source", {}):
                one["source"][kind] = True
    for one in hooks.get("experiment", ()):
        one["use"] = one["use"].rpartition("/")[2]


def canonical_json(value: Any) -> str:
    """Return the one JSON text of plain values: sorted keys, no white space, no escapes, no NaN."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def config_sha256(config: RunConfig) -> str:
    """Return the sha256 of the identity's canonical JSON."""
    return hashlib.sha256(canonical_json(identity(config)).encode()).hexdigest()


class _Dumper(yaml.SafeDumper):
    """Writes text that YAML 1.1 and 1.2 readers read alike: where they would differ, in double quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        ambiguous = resolve_plain(text) != text or not text.isprintable()
        return self.represent_scalar("tag:yaml.org,2002:str", text, style='"' if ambiguous else None)


_Dumper.add_representer(str, _Dumper.represent_text)


def dump(config: RunConfig) -> str:
    """Write the config as resolved; loading the text gives an equal config."""
    return yaml.dump(resolved(config), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=2**20)
