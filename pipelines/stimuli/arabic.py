"""Vocalised Arabic spelling of a transliteration, and the way back.

`write` follows standard orthography: short vowels and sukun as marks, shadda on doubled consonants, hamzat al-wasl as a
bare alif that carries its vowel, the hamza's seat by the usual strength order (i over u over a over none; W. Wright,
A Grammar of the Arabic Language, 3rd ed., part I, §§ 15-17 on the hamza, § 11 on the tashdid, § 22 on the madda).
No mark stands on a last consonant: forms are pausal. Marks are in NFC order (vowel before shadda), so that
normalisation never changes a form.
"""

import unicodedata
from typing import Final

from pipelines.stimuli.translit import (
    ALIF_MAQSURA,
    CONSONANTS,
    LONG,
    NASAL,
    SHORT,
    TA_MARBUTA,
    TANWIN,
    VOWELS,
    MorphologyError,
)

SUKUN: Final = "ْ"
SHADDA: Final = "ّ"
MARKS: Final = frozenset("ًٌٍَُِّْٰ")
_MATRES: Final = {"ā": "ا", "ī": "ي", "ū": "و"}
_SOUNDS: Final = (
    {arabic: latin for latin, arabic in CONSONANTS.items()} | dict.fromkeys("أإؤئ", "ʾ") | {"ة": TA_MARBUTA}
)
_FINAL_VOWELS: Final = frozenset({"", "a", "i", "u", "i" + NASAL, "u" + NASAL})
"""Vowels written without a letter: before them a last hamza is the word's last letter."""


def strip_marks(text: str) -> str:
    """Return the text without vowel marks, sukun, shadda, tanwin and superscript alif."""
    return "".join(character for character in text if character not in MARKS)


def write(translit: str) -> str:
    """Spell a transliterated form in vocalised Arabic; `MorphologyError` where the spelling rules say nothing."""
    units = _units(translit)
    text = "".join(_spell(units, index) for index in range(len(units)))
    return unicodedata.normalize("NFC", text)


def _units(translit: str) -> list[tuple[str, int, str]]:
    """(consonant, how often, the vowel after it) per letter; a word-initial vowel has the consonant ''."""
    units: list[tuple[str, int, str]] = []
    at = 0
    if translit[:1] in SHORT:
        units.append(("", 1, translit[0]))
        at = 1
    while at < len(translit):
        letter = translit[at]
        if letter not in CONSONANTS and letter != TA_MARBUTA:
            raise MorphologyError(f"{translit!r}: {letter!r} cannot stand at {at}; expected a consonant there")
        count = 2 if translit[at + 1 : at + 2] == letter else 1
        at += count
        end = at + (translit[at : at + 1] in VOWELS)
        end += translit[end : end + 1] == NASAL
        units.append((letter, count, translit[at:end]))
        at = end
    return units


def _spell(units: list[tuple[str, int, str]], index: int) -> str:
    letter, count, vowel = units[index]
    last = index == len(units) - 1
    if letter == TA_MARBUTA:
        return "ة"
    if letter == "":
        return "ا" + SHORT[vowel]
    shadda = SHADDA if count == 2 else ""
    if letter == "ʾ":
        return _hamza(units, index, shadda)
    return CONSONANTS[letter] + shadda + _vowel(vowel, last=last)


def _vowel(vowel: str, *, last: bool) -> str:
    if vowel == "":
        return "" if last else SUKUN
    if vowel in SHORT:
        return SHORT[vowel]
    if vowel in _MATRES:
        return SHORT[LONG[vowel]] + _MATRES[vowel]
    if vowel == ALIF_MAQSURA:
        return SHORT["a"] + "ى"
    return TANWIN[vowel[0]] + ("ى" if vowel[0] == "a" else "")


def _hamza(units: list[tuple[str, int, str]], index: int, shadda: str) -> str:
    vowel = units[index][2]
    last = index == len(units) - 1
    seat = _seat(units, index)
    if vowel == "ā" and seat == "أ":
        if shadda:
            raise MorphologyError("a doubled hamza before ā: spellings differ (سأّال, سآّل), so none is chosen")
        return "آ"
    return seat + shadda + _vowel(vowel, last=last)


def _seat(units: list[tuple[str, int, str]], index: int) -> str:
    """Find the letter that carries a hamza: by its place, its own vowel and what stands before it."""
    own = _colour(units[index][2])
    if index == 0:
        return "إ" if own == "i" else "أ"
    before = units[index - 1][2]
    if index == len(units) - 1 and units[index][2] in _FINAL_VOWELS:
        return {"a": "أ", "i": "ئ", "u": "ؤ"}.get(before, "ء")
    return _medial_seat(own, before, units[index - 1][0])


def _medial_seat(own: str, before: str, previous: str) -> str:
    glide = previous if before == "" else ""
    if "i" in (own, before) or before == "ī" or glide == "y":
        return "ئ"
    if before == "ū" or glide == "w":
        if glide == "w":
            raise MorphologyError("a hamza after a vowelless w: spellings differ (توأم, توءم), so none is chosen")
        return "ء"
    if "u" in (own, before):
        return "ؤ"
    return "ء" if before == "ā" else "أ"


def _colour(vowel: str) -> str:
    return LONG.get(vowel[:1], "a" if vowel == ALIF_MAQSURA else vowel[:1])


def read(surface: str) -> str:
    """Transliterate a form that `write` spelt; `MorphologyError` for a letter or mark it never writes."""
    out = ""
    for letter, marks in _letters(unicodedata.normalize("NFC", surface)):
        out = _lengthened(out, letter, marks) or out + _sound(letter, marks, first=not out)
    return out


def _lengthened(before: str, letter: str, marks: str) -> str | None:
    """Return what was read with its last vowel made long by `letter`; None if the letter is a sound of its own."""
    if letter == "ى" and before.endswith("a" + NASAL):
        return before
    lengthener = {"ا": ("a", "ā"), "ى": ("a", ALIF_MAQSURA), "و": ("u", "ū"), "ي": ("i", "ī")}.get(letter)
    if lengthener is None or marks or not before.endswith(lengthener[0]):
        return None
    return before[:-1] + lengthener[1]


def _letters(surface: str) -> list[tuple[str, str]]:
    letters: list[tuple[str, str]] = []
    for character in surface:
        if character not in MARKS:
            letters.append((character, ""))
        elif letters:
            letters[-1] = (letters[-1][0], letters[-1][1] + character)
    return letters


def _sound(letter: str, marks: str, *, first: bool) -> str:
    vowel = "".join(latin for latin, mark in SHORT.items() if mark in marks)
    vowel += "".join(latin + NASAL for latin, mark in TANWIN.items() if mark in marks)
    if letter == "آ":
        return "ʾā"
    if letter == "ا" and first and vowel:
        return vowel
    latin = _SOUNDS.get(letter)
    if latin is None:
        raise MorphologyError(f"{letter!r} cannot stand there; expected vocalised Arabic as `write` spells it")
    return latin * (2 if SHADDA in marks else 1) + vowel
