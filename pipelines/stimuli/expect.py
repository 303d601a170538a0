"""Comparing a produced continuation with the expected one.

Three answers are kept side by side, because texts that look equal may differ in white space or in the order of marks
(shadda before or after the vowel). What counts as correct is a fourth: after trimming, and after the further steps that
the config names (`score.normalize`). It names none by default, and the fourth is then the second.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pipelines.stimuli.arabic import strip_marks
from pipelines.stimuli.record import ExpectMode

Step = Literal["nfc", "strip_diacritics", "strip_tatweel"]
TRIM: Final = "trim"
"""How records name the first step, which is always taken: white space around a text is removed."""
TATWEEL: Final = "\u0640"
STEPS: Final[dict[str, Callable[[str], str]]] = {
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "strip_diacritics": strip_marks,
    "strip_tatweel": lambda text: text.replace(TATWEEL, ""),
}
"""What `score.normalize` may name; each is done to both texts, in the order of this table.

strip_diacritics takes out the Arabic vowel marks, tanwin, shadda, sukun (U+064B to U+0652) and superscript alif
(U+0670); marks that make another letter, as hamza and madda, stay.
"""


@dataclass(frozen=True, slots=True)
class Match:
    """How a continuation compares with what was expected."""

    raw: bool
    """As produced, code point by code point."""
    trimmed: bool
    """After removing white space around both texts."""
    nfc: bool
    """After trimming and NFC of both: canonically equivalent texts agree."""
    correct: bool
    """After trimming and the steps that the config names: whether the continuation counts as right."""


def compare(expected: str, produced: str, mode: ExpectMode, steps: Sequence[str] = ()) -> Match:
    """Whether `produced` equals (`exact`), starts with (`prefix`) or contains (`contains`) the expected text.

    `steps` are names of STEPS. An expected text of which they leave nothing is found nowhere.
    """
    wanted, got = expected.strip(), produced.strip()
    return Match(
        raw=_agrees(expected, produced, mode),
        trimmed=_agrees(wanted, got, mode),
        nfc=_agrees(unicodedata.normalize("NFC", wanted), unicodedata.normalize("NFC", got), mode),
        correct=_normalised_agree(wanted, got, mode, steps),
    )


def _normalised_agree(wanted: str, got: str, mode: ExpectMode, steps: Sequence[str]) -> bool:
    for name, step in STEPS.items():
        if name in steps:
            wanted, got = step(wanted).strip(), step(got).strip()
    return bool(wanted) and _agrees(wanted, got, mode)


def _agrees(expected: str, produced: str, mode: ExpectMode) -> bool:
    if mode == "exact":
        return produced == expected
    return produced.startswith(expected) if mode == "prefix" else expected in produced
