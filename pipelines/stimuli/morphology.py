"""Root and pattern to form: `apply("ktb", "ma12uu3")` is مَكْتُوب.

A pattern is a string in the transliteration of `translit` in which the digits 1 2 3 are slots for the radicals:

    a i u            short vowels                    A or aa or ā, ii or ī, uu or ū    long vowels
    1 2 3            the radicals; a digit twice in a row is a doubled radical (shadda)
    m t n s y ʾ …    consonants of affixes (' is ʾ)  p or ẗ                            ta marbuta, after a

A consonant without a vowel has a sukun unless it is the last letter. A vowel in front of everything stands on a hamzat
al-wasl. Slots are filled in one pass, so a radical that equals an affix letter or looks like a slot is never replaced
again. Forms are pausal: nouns without case ending (the defective ones indefinite, رَامٍ), verbs third person masculine
singular. What the stated rules of `rules` and `weak` do not cover raises `MorphologyError`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.stimuli import arabic
from pipelines.stimuli.rules import REFUSALS, rewrite_all
from pipelines.stimuli.translit import VOWELS, arabic_root, consonant, radicals
from pipelines.stimuli.translit import MorphologyError as MorphologyError
from pipelines.stimuli.weak import ORDER

__all__ = ["Form", "MorphologyError", "apply", "parse_pattern"]

_LONG_SPELLINGS: Final = {"aa": "ā", "ii": "ī", "uu": "ū", "A": "ā"}
_TOKEN: Final = re.compile("aa|ii|uu|A|.")


@dataclass(frozen=True, slots=True)
class Form:
    """A word made from a root and a pattern.

    `surface` is vocalised Arabic, `bare` the same without marks, `translit` the one-sign-a-sound transliteration,
    `root` the three radicals transliterated, `root_ar` in Arabic letters, `pattern` as given, `rules` the names of the
    stated rules that shaped the form.
    """

    surface: str
    bare: str
    translit: str
    root: str
    root_ar: str
    pattern: str
    rules: tuple[str, ...]


def apply(root: str | Sequence[str], pattern: str) -> Form:
    """Make the form of a root (`ktb`, `q-w-l`, `كتب`, `["k", "t", "b"]`) in a pattern (`ma12uu3`).

    Raises `MorphologyError` for a malformed root or pattern, and for a pair that no stated rule covers.
    """
    letters = radicals(root if isinstance(root, str) else tuple(root))
    joined = "".join(letters)
    outline = "".join(token + letters[int(token) - 1] if token.isdigit() else token for token in parse_pattern(pattern))
    for refusal in REFUSALS:
        refusal.check(outline, joined)
    shaped, rules = rewrite_all(ORDER, outline, joined)
    _refuse_open(shaped, joined, pattern)
    translit = re.sub("[123]", "", shaped)
    surface = arabic.write(translit)
    return Form(surface, arabic.strip_marks(surface), translit, joined, arabic_root(joined), pattern, rules)


def parse_pattern(pattern: str) -> tuple[str, ...]:
    """Split a pattern into slots and transliterated sounds; `MorphologyError` names the character that cannot stand."""
    tokens = tuple(_token(spelling, pattern) for spelling in _TOKEN.findall(pattern))
    slots = "".join(token for token in tokens if token.isdigit())
    if not re.fullmatch("1+2+3+", slots):
        raise MorphologyError(
            f"pattern {pattern!r} has the slots {slots or 'none'!r}; expected 1, 2 and 3 in this order, as in '1A2i3'"
        )
    _check_syllables(tokens, pattern)
    return tokens


def _token(spelling: str, pattern: str) -> str:
    if spelling in _LONG_SPELLINGS:
        return _LONG_SPELLINGS[spelling]
    if spelling in VOWELS or spelling in ("1", "2", "3"):
        return spelling
    if spelling in ("p", "ẗ"):
        return "ẗ"
    sound = consonant(spelling)
    if sound is None:
        raise MorphologyError(
            f"pattern {pattern!r}: {spelling!r} is neither a slot (1 2 3), nor a vowel (a i u A aa ii uu), "
            "nor a consonant"
        )
    return sound


def _check_syllables(tokens: tuple[str, ...], pattern: str) -> None:
    """Two vowels in a row, a long vowel in front or a ta marbuta elsewhere than after a last `a` cannot be written."""
    joined = "".join("V" if token in VOWELS else "C" for token in tokens)
    if "VV" in joined or tokens[0] in VOWELS - {"a", "i", "u"}:
        raise MorphologyError(f"pattern {pattern!r}: expected consonants between vowels and no long vowel in front")
    if tokens[0] == "a":
        raise MorphologyError(
            f"pattern {pattern!r}: expected i or u where a vowel comes first; the article is not covered"
        )
    if "CCC" in joined or joined.startswith("CC"):
        raise MorphologyError(
            f"pattern {pattern!r}: expected at most two consonants together, and one at the beginning"
        )
    if "ẗ" in tokens[:-1] or (tokens[-1] == "ẗ" and tokens[-2] != "a"):
        raise MorphologyError(
            f"pattern {pattern!r}: expected the ta marbuta (p) only at the end and after a, as in 'ma12a3ap'"
        )


def _refuse_open(shaped: str, root: str, pattern: str) -> None:
    """Refuse what no rule has settled: a radical w or y, or the third of a geminate root, that kept its digit."""
    first, second, third = tuple(root)
    weak = [("1", first), ("3", third)] if third in "wy" else [("1", first), ("2", second)]
    is_open = any(letter in "wy" and slot + letter in shaped for slot, letter in weak)
    if is_open or (second == third and "3" + third in shaped):
        raise MorphologyError(
            f"root {root!r} in pattern {pattern!r}: no stated rule covers a weak or doubled radical there "
            f"(outline {shaped!r}); take another pattern or a strong root"
        )
