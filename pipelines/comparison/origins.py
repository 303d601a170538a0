"""What made two runs, as their manifests and configs tell it, part by part."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ember.errors import EmberError
from pipelines.canonical import explain_difference, plain
from pipelines.config import config_sha256, identity, load_config
from pipelines.manifest import Manifest

CONFIG: Final = "config.yaml"
PARTS: Final = {
    "hooks": ("hooks",),
    "generation": ("generate", "score"),
    "numerics": ("engine", "dtype", "guard_positions"),
    "tokenizer": ("tokenizer",),
}
"""Sections of the config that each part is made of."""


def explain_origins(a: tuple[Path, Manifest], b: tuple[Path, Manifest]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Name what differs between two runs (directory and manifest), part by part, and say what could not be told."""
    configs, notes = zip(*(_config(*side) for side in (a, b)), strict=True)
    one, other = a[1], b[1]
    found: dict[str, list[str]] = {
        "model": _hashes(one, other, "model_sha256")
        + explain_difference(one.origin.model, other.origin.model, "model"),
        "tokenizer": explain_difference(one.origin.tokenizer, other.origin.tokenizer, "tokenizer"),
        "stimuli": _stimuli(one, other),
        "hooks": _hooks(one, other),
        "generation": _told(one, other, "generation") + _told(one, other, "scoring"),
        "numerics": explain_difference(_numerics(one), _numerics(other), "numerics"),
    }
    if None not in configs:
        for part, sections in PARTS.items():
            found[part] += _sections(configs, sections)
    return {part: tuple(dict.fromkeys(lines)) for part, lines in found.items()}, [note for note in notes if note]


def _sections(configs: Sequence[Any], names: Sequence[str]) -> list[str]:
    a, b = configs
    return [line for name in names for line in explain_difference(a.get(name), b.get(name), name)]


def _hashes(a: Manifest, b: Manifest, name: str) -> list[str]:
    was, now = getattr(a.inputs, name), getattr(b.inputs, name)
    return [] if was == now else [f"{name}: was {was[:16]}…, is {now[:16]}…"]


def _stimuli(a: Manifest, b: Manifest) -> list[str]:
    """What differs between the sets; how they came about counts only where they do."""
    found = _hashes(a, b, "stimuli_sha256") + _hashes(a, b, "sample_order_sha256")
    return found + (_told(a, b, "stimuli") if found else [])


def _hooks(a: Manifest, b: Manifest) -> list[str]:
    named = explain_difference(_captures(a), _captures(b), "captures") + _told(a, b, "hooks")
    return named or _hashes(a, b, "hooks_sha256")


def _told(a: Manifest, b: Manifest, record: str) -> list[str]:
    return explain_difference(getattr(a.origin, record) or {}, getattr(b.origin, record) or {}, record)


def _captures(manifest: Manifest) -> dict[str, Any]:
    return {capture.name: plain(capture) for capture in manifest.origin.captures}


def _numerics(manifest: Manifest) -> dict[str, Any]:
    told = {"numerics_version": manifest.inputs.numerics_version, "dtype": manifest.origin.dtype}
    return {**manifest.origin.numerics, **told}


def _config(directory: Path, manifest: Manifest) -> tuple[dict[str, Any] | None, str]:
    """Return what decides the values of a run as its config says, or why that is not known."""
    path = directory / CONFIG
    try:
        config = load_config(path)
        if config_sha256(config) == manifest.inputs.config_sha256:
            return identity(config), ""
        why = "is not the one that the manifest was made with"
    except EmberError as error:
        why = "cannot be read" if path.exists() else "is absent"
        why += f" ({str(error).splitlines()[0]})" if path.exists() else ""
    return None, f"{path} {why}: it is compared only as far as the manifests tell"
