"""Recorded reference values: read from npz, and measured against."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.validation.figures import allowance, disagreement
from ember.validation.recording import SITE_OF_KEY

__all__ = ["SITES", "SITE_OF_KEY", "Golden", "allowance", "disagreement", "first_break"]
SITES = ("before_layer", *SITE_OF_KEY.values())


@dataclass(frozen=True, slots=True)
class Golden:
    """One file's prompts and arrays; `prefix` picks the variant of the shared goldens to test against."""

    prompts: list[list[int]]
    arrays: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path, *, prefix: str = "") -> "Golden":
        with np.load(path) as archive:
            stored = {key: archive[key] for key in archive.files}
        lengths = stored.pop("lengths")
        prompts = [ids[:length].tolist() for ids, length in zip(stored.pop("tokens"), lengths, strict=True)]
        about = json.loads(str(stored.pop("about"))) if "about" in stored else {}
        return cls(prompts, {key.removeprefix(prefix): stored[key] for key in stored if key.startswith(prefix)}, about)

    def sites(self) -> dict[str, NDArray[np.float32]]:
        """Give the expected values of every site: [prompts, layers, d], the logits' sites without layers."""
        incoming = np.concatenate([self.arrays["h0"][:, None], self.arrays["l_out"][:, :-1]], axis=1)
        return {"before_layer": incoming} | {site: self.arrays[key] for key, site in SITE_OF_KEY.items()}


def first_break(expected: NDArray[np.int32], margins: NDArray[np.float32], given: list[int]) -> str | None:
    """Say where a greedy continuation leaves the recorded one, with the margin there; None if it does not."""
    for step, (id_, margin) in enumerate(zip(expected.tolist(), margins.tolist(), strict=True)):
        if step >= len(given) or given[step] != id_:
            found = given[step] if step < len(given) else "nothing"
            return f"step {step}: {found} instead of {id_}, whose lead over the second is {margin:.6f}"
    return None
