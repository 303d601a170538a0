"""Changes of text that a config may ask for by name; without `stimuli.normalize` no text is changed.

Each is a function of the text alone and idempotent. They are done in the order in which the config lists them, to
prompts, targets and expected texts, never to labels; the prompt as given is kept beside the changed one.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from pipelines.stimuli.arabic import strip_marks

Normaliser = Literal[
    "nfc", "strip_bidi_marks", "strip_tatweel", "strip_diacritics", "unify_yeh_kaf", "fold_presentation_forms"
]

TATWEEL: Final = "\u0640"
BIDI_MARKS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks, embeddings, overrides and isolates of the bidirectional algorithm. Joiners, which shape letters, stay."""
PRESENTATION_FORMS: Final = re.compile("[\ufb50-\ufdff\ufe70-\ufefc]")
_NO_BIDI: Final = str.maketrans("", "", BIDI_MARKS)
_ARABIC_LETTERS: Final = str.maketrans({"\u06cc": "\u064a", "\u06a9": "\u0643"})


def _fold_forms(text: str) -> str:
    return PRESENTATION_FORMS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)


NORMALISERS: Final[dict[Normaliser, Callable[[str], str]]] = {
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "strip_bidi_marks": lambda text: text.translate(_NO_BIDI),
    "strip_tatweel": lambda text: text.replace(TATWEEL, ""),
    "strip_diacritics": strip_marks,
    "unify_yeh_kaf": lambda text: text.translate(_ARABIC_LETTERS),
    "fold_presentation_forms": _fold_forms,
}
"""By name. unify_yeh_kaf makes Persian yeh (U+06CC) and keheh (U+06A9) the Arabic letters U+064A and U+0643; alef
maqsura (U+0649) stays. fold_presentation_forms replaces U+FB50 to U+FDFF and U+FE70 to U+FEFC by their letters."""


def normalised(text: str, steps: Sequence[Normaliser]) -> str:
    """Return `text` after all steps, in order."""
    for step in steps:
        text = NORMALISERS[step](text)
    return text


def changes(texts: Iterable[str], steps: Sequence[Normaliser]) -> dict[str, int]:
    """Count, for each step, the texts that it changes after those before it."""
    counts = dict.fromkeys(map(str, steps), 0)
    for text in texts:
        for step in steps:
            after = NORMALISERS[step](text)
            counts[step] += after != text
            text = after
    return counts
