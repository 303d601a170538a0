"""The transliteration alphabet: one character a sound, so that it converts to vocalised Arabic and back without loss.

Consonants are those of DIN 31635 (ʾ b t ṯ ǧ ḥ ḫ d ḏ r z s š ṣ ḍ ṭ ẓ ʿ ġ f q k l m n h w y). Vowels are a i u and
ā ī ū. Three signs stand for spellings rather than sounds: `á` is ā written as alif maqsura (ى), `ẗ` the ta marbuta (ة),
and `aⁿ iⁿ uⁿ` the tanwin of a defective noun (`aⁿ` is always written ـًى here). Roots and patterns may also be typed in
Buckwalter's ASCII letters, which do not collide with these.
"""

from typing import Final

from ember.errors import InputError

CONSONANTS: Final = {
    "ʾ": "ء", "b": "ب", "t": "ت", "ṯ": "ث", "ǧ": "ج", "ḥ": "ح", "ḫ": "خ", "d": "د", "ḏ": "ذ", "r": "ر",
    "z": "ز", "s": "س", "š": "ش", "ṣ": "ص", "ḍ": "ض", "ṭ": "ط", "ẓ": "ظ", "ʿ": "ع", "ġ": "غ", "f": "ف",
    "q": "ق", "k": "ك", "l": "ل", "m": "م", "n": "ن", "h": "ه", "w": "و", "y": "ي",
}  # fmt: skip
"""Transliterated consonant -> Arabic letter; the hamza's seat is decided in `arabic`."""

SHORT: Final = {"a": "َ", "i": "ِ", "u": "ُ"}
LONG: Final = {"ā": "a", "ī": "i", "ū": "u"}
"""Long vowel -> its short one."""
TANWIN: Final = {"a": "ً", "i": "ٍ", "u": "ٌ"}
NASAL: Final = "ⁿ"
TA_MARBUTA: Final = "ẗ"
ALIF_MAQSURA: Final = "á"
VOWELS: Final = frozenset("aiu") | frozenset(LONG) | {ALIF_MAQSURA}

BUCKWALTER: Final = {
    "'": "ʾ", "v": "ṯ", "j": "ǧ", "H": "ḥ", "x": "ḫ", "*": "ḏ", "$": "š", "S": "ṣ", "D": "ḍ", "T": "ṭ", "Z": "ẓ",
    "E": "ʿ", "g": "ġ",
}  # fmt: skip
"""The ASCII letters of Buckwalter's scheme that differ from the alphabet above."""

_FROM_ARABIC: Final = {arabic: latin for latin, arabic in CONSONANTS.items()} | dict.fromkeys("أإؤئ", "ʾ")
_SEPARATORS: Final = " -.·"


class MorphologyError(InputError):
    """A root, a pattern or a pair of them for which no stated rule gives a form."""


def consonant(letter: str) -> str | None:
    """Transliterate an Arabic, DIN 31635 or Buckwalter letter; None if it is none of them."""
    if letter in CONSONANTS:
        return letter
    return _FROM_ARABIC.get(letter) or BUCKWALTER.get(letter)


def radicals(root: "str | tuple[str, ...] | list[str]") -> tuple[str, str, str]:
    """Return the three radicals of a root such as `ktb`, `q-w-l`, `كتب` or `("k", "t", "b")`, transliterated.

    Raises `MorphologyError` unless there are exactly three consonants.
    """
    letters = [letter for letter in root if letter not in _SEPARATORS]
    found = [consonant(letter) for letter in letters]
    for letter, latin in zip(letters, found, strict=True):
        if latin is None:
            raise MorphologyError(
                f"root {root!r}: {letter!r} is not a consonant; expected Arabic letters, or the transliteration "
                f"{' '.join(CONSONANTS)}, or Buckwalter's {' '.join(BUCKWALTER)}; write vowels only in patterns"
            )
    if len(found) != 3:
        raise MorphologyError(
            f"root {root!r} has {len(found)} radicals; expected three, as in 'ktb'; other roots are not covered"
        )
    first, second, third = (str(latin) for latin in found)
    return first, second, third


def arabic_root(root: "str | tuple[str, ...] | list[str]") -> str:
    """Write the root's three letters in Arabic script, the hamza on an alif as dictionaries head it (أكل)."""
    return "".join(CONSONANTS[radical] for radical in radicals(root)).replace("ء", "أ")
