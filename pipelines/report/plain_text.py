"""Text of anybody as it can safely be shown: what cannot be seen is named, what is long is cut."""

import re
import unicodedata
from typing import Final

BIDI: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Marks that turn the direction of what stands after them. Joiners stay: they shape letters."""
_HIDDEN: Final = re.compile(f"[\u0000-\u001f\u007f-\u009f\u2028\u2029\ufeff\ufff9-\ufffb{BIDI}]")
NAMED: Final = {"\n": "↵", "\t": "⇥"}


def pieces(text: str) -> list[tuple[str, bool]]:
    """Part `text` into what is shown as it is, and names of characters that cannot be seen (True)."""
    found, at = [], 0
    for match in _HIDDEN.finditer(text):
        if match.start() > at:
            found.append((text[at : match.start()], False))
        character = match.group()
        found.append((NAMED.get(character, f"U+{ord(character):04X}"), True))
        at = match.end()
    return [*found, *([(text[at:], False)] if at < len(text) else [])]


def visible(text: str) -> str:
    """`text` with hidden characters as their names."""
    return "".join(f"[{piece}]" if named and len(piece) > 1 else piece for piece, named in pieces(text))


def shortened(text: str, most: int) -> str:
    """`text` for a figure: visible, and cut after `most` characters without parting a letter from its marks."""
    told = visible(text)
    if len(told) <= most:
        return told
    end = most - 1
    while end > 1 and unicodedata.combining(told[end]):
        end -= 1
    return told[:end] + "…"


def language_of(text: str) -> str | None:
    """`und-Arab` for text in Arabic letters, so that a browser takes a fitting font; None for any other."""
    return "und-Arab" if any(unicodedata.bidirectional(character) == "AL" for character in text) else None
