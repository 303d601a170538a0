"""Where a model named in a configuration or on a command line lies: a path, or one that ships with Ember."""

from pathlib import Path
from typing import Final

from ember.errors import InputError

ASSETS: Final = Path(__file__).parent / "assets"
BUILTIN: Final = {"builtin:sarf-nano": ASSETS / "sarf-nano.gguf"}


def resolve_model(name: str | Path, base: Path | None = None) -> Path:
    """Path of a model; relative ones are taken from `base` (default: the working directory). Raises InputError."""
    text = str(name)
    if text in BUILTIN:
        return BUILTIN[text]
    if text.startswith("builtin:"):
        raise InputError(f"model {text!r}: no such built-in model; there is {', '.join(BUILTIN)}")
    if "://" in text:
        raise InputError(f"model {text!r}: fetching is not supported; download the .gguf file and give its path")
    path = Path(text).expanduser()
    return path if path.is_absolute() or base is None else base / path
