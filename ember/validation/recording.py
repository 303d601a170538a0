"""What a reference says about some prompts: values of every site at the last token, and greedy continuations.

A leaf, so that a recorder can run under another Python that has the reference but not all of Ember. On disk a recording
is an npz in the layout of the project's goldens: `tokens` [P, longest] (-1 behind the end), `lengths` [P], and of the
last token `h0` [P, D], `l_out`, `attn_contrib`, `mlp_contrib` [P, layers, D], `result_norm` [P, D], `logits` [P, V],
`greedy` and `greedy_margin` [P, steps], `about` (JSON). A key may carry the prefix `ref_`, which then goes first.
"""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import InputError
from ember.work import Floats

SITE_OF_KEY: Final = {
    "l_out": "after_layer",
    "attn_contrib": "after_attention",
    "mlp_contrib": "after_mlp",
    "result_norm": "before_logits",
    "logits": "after_logits",
}
PREFIX: Final = "ref_"


@dataclass(frozen=True, slots=True)
class Recording:
    """Prompts with a reference's values."""

    prompts: tuple[tuple[int, ...], ...]
    arrays: Mapping[str, NDArray[Any]]
    """By the keys of the layout, without `tokens`, `lengths` and `about`."""
    about: Mapping[str, Any]
    """Who recorded: `name`, `version`, `settings` (a sentence each) where known."""

    def sites(self) -> dict[str, Floats]:
        """Return the values of each recorded site: [prompts, layers, D], the logits' sites without layers."""
        found = {site: self.arrays[key] for key, site in SITE_OF_KEY.items() if key in self.arrays}
        if "h0" in self.arrays and "after_layer" in found:
            incoming = np.concatenate([self.arrays["h0"][:, None], found["after_layer"][:, :-1]], axis=1)
            found = {"before_layer": incoming, **found}
        return found

    @property
    def greedy(self) -> tuple[NDArray[np.int32], Floats] | None:
        """Greedy ids and the lead of each over the second, [prompts, steps] each; None if they were not recorded."""
        if "greedy" not in self.arrays or "greedy_margin" not in self.arrays:
            return None
        return self.arrays["greedy"], self.arrays["greedy_margin"]


def write_recording(path: Path, recording: Recording) -> None:
    """Write a recording as npz."""
    tokens = np.full((len(recording.prompts), max(map(len, recording.prompts))), -1, np.int32)
    for row, prompt in zip(tokens, recording.prompts, strict=True):
        row[: len(prompt)] = prompt
    lengths = np.array([len(prompt) for prompt in recording.prompts], np.int32)
    about = np.array(json.dumps(dict(recording.about), ensure_ascii=False))
    arrays: dict[str, Any] = {"tokens": tokens, "lengths": lengths, "about": about, **recording.arrays}
    np.savez(path, **arrays)


def read_recording(path: Path) -> Recording:
    """Read a recording. Raises InputError for a file that is not one."""
    try:
        opened = np.load(path, allow_pickle=False)
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise ValueError("a single array")
        with opened as archive:
            stored = {key: archive[key] for key in archive.files}
        about = json.loads(str(stored.pop("about"))) if "about" in stored else {}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected an npz of recorded values") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not an npz of recorded values ({error})") from None
    if missing := [key for key in ("tokens", "lengths") if key not in stored]:
        raise InputError(f"{path}: has no {' and no '.join(missing)}; expected the prompts beside their values")
    prompts = _prompts(path, stored.pop("tokens"), stored.pop("lengths"))
    known = {**_with_prefix(stored, ""), **_with_prefix(stored, PREFIX)}
    recording = Recording(prompts, known, {"name": path.name, **about})
    _check(path, recording)
    return recording


def _with_prefix(stored: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    names = ("h0", *SITE_OF_KEY, "greedy", "greedy_margin")
    return {name: stored[prefix + name] for name in names if prefix + name in stored}


def _prompts(path: Path, tokens: NDArray[Any], lengths: NDArray[Any]) -> tuple[tuple[int, ...], ...]:
    fits = tokens.ndim == 2 and lengths.shape == tokens.shape[:1] and len(lengths)
    if not fits or not all(np.issubdtype(a.dtype, np.integer) for a in (tokens, lengths)):
        raise InputError(
            f"{path}: tokens {tokens.dtype} {tokens.shape} with lengths {lengths.dtype} {lengths.shape}; "
            "expected integers [prompts, longest] and [prompts]"
        )
    if lengths.min() < 1 or lengths.max() > tokens.shape[1]:
        raise InputError(f"{path}: lengths from {lengths.min()} to {lengths.max()} in rows of {tokens.shape[1]} tokens")
    return tuple(tuple(row[:n].tolist()) for row, n in zip(tokens, lengths.tolist(), strict=True))


def _check(path: Path, recording: Recording) -> None:
    if "logits" not in recording.arrays:
        raise InputError(f"{path}: has no logits; expected at least those, and the sites ({', '.join(SITE_OF_KEY)})")
    for key, values in recording.arrays.items():
        rank = 3 if key in ("l_out", "attn_contrib", "mlp_contrib") else 2
        if values.ndim != rank or len(values) != len(recording.prompts) or values.dtype.kind not in "fi":
            raise InputError(
                f"{path}: {key} is {values.dtype} {values.shape}, expected numbers of {rank} dimensions, "
                f"the first of {len(recording.prompts)} prompts"
            )
        if not np.isfinite(values).all():
            raise InputError(f"{path}: {key} holds values that are not finite; record it again")
