"""Comparing a produced continuation with the expected one.

Three answers are kept side by side, because texts that look equal may differ in white space or in the order of marks
(shadda before or after the vowel); only one of them, `trimmed`, counts as correct.
"""

import unicodedata
from dataclasses import dataclass

from pipelines.stimuli.record import ExpectMode


@dataclass(frozen=True, slots=True)
class Match:
    """How a continuation compares with what was expected."""

    raw: bool
    """As produced, code point by code point."""
    trimmed: bool
    """After removing white space around both texts; this is what `correct` means."""
    nfc: bool
    """After trimming and NFC of both: canonically equivalent texts agree."""

    @property
    def correct(self) -> bool:
        """Whether the continuation counts as right."""
        return self.trimmed


def compare(expected: str, produced: str, mode: ExpectMode) -> Match:
    """Whether `produced` equals (`exact`), starts with (`prefix`) or contains (`contains`) the expected text."""
    wanted, got = expected.strip(), produced.strip()
    return Match(
        raw=_agrees(expected, produced, mode),
        trimmed=_agrees(wanted, got, mode),
        nfc=_agrees(unicodedata.normalize("NFC", wanted), unicodedata.normalize("NFC", got), mode),
    )


def _agrees(expected: str, produced: str, mode: ExpectMode) -> bool:
    if mode == "exact":
        return produced == expected
    return produced.startswith(expected) if mode == "prefix" else expected in produced
