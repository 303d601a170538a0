"""Stated rules of sound change: what a rule is, and those for the hamza, form VIII and the first radical.

A rule rewrites the *outline* of a form: the pattern with its slots filled, each radical behind its slot's digit, as in
`1qa2wa3la` for qwl in `1a2a3a`. A radical that may not stay as it is (w, y, the third of a geminate root) is *open*
until a rule has replaced it or has said that it stays, which is shown by taking its digit away. What is still open at
the end is refused, so that no form comes about by accident.

`why` states the rule as grammars of Arabic do (W. Wright, A Grammar of the Arabic Language, 3rd ed., vol. I, treats the
classes one by one under "the weak verb"); the example in it is asserted by the tests.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pipelines.stimuli.translit import MorphologyError


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rewriting: `find` and `put` are a regular expression over outlines and its replacement.

    `roots` is a regular expression that the three radicals must match as a whole.
    """

    name: str
    find: str
    put: str
    why: str
    roots: str = "..."

    def rewrite(self, outline: str, root: str) -> str:
        """Return the outline after this rule; the same one where the rule does not apply."""
        return re.sub(self.find, self.put, outline) if re.fullmatch(self.roots, root) else outline


@dataclass(frozen=True, slots=True)
class Refusal:
    """A named gap: outlines that match `find` have no form here, and `why` says what is missing or divided."""

    name: str
    find: str
    why: str
    roots: str = "..."

    def check(self, outline: str, root: str) -> None:
        """Raise `MorphologyError` if the outline falls into the gap."""
        if re.fullmatch(self.roots, root) and re.search(self.find, outline):
            raise MorphologyError(f"root {root!r} has no form there: {self.why} ({self.name}); take another pattern")


def rewrite_all(rules: Iterable[Rule], outline: str, root: str) -> tuple[str, tuple[str, ...]]:
    """Return the outline after all rules in order, and the names of those that changed it or settled a radical."""
    fired = []
    for rule in rules:
        after = rule.rewrite(outline, root)
        if after != outline:
            fired.append(rule.name)
        outline = after
    return outline, tuple(fired)


REFUSALS: Final = (
    Refusal(
        "doubly_weak",
        "",
        "of two neighbouring weak radicals only w before y is covered (طوى)",
        roots="[wy][wy].|.(ww|yy|yw)",
    ),
    Refusal("form7_gap", "n1[ʾwyrlnm]", "form VII is not formed, or divided, before ʾ w y r l n m"),
    Refusal("form8_tha", "1ṯt", "after ṯ usage is divided between اِثَّأَرَ and اِتَّأَرَ"),
    Refusal("two_hamzas_apart", "ʾ[aiu]1ʾ([aiuāīū]|2[wy][aiuā]|2(.)[aiu]3\\2)", "two hamzas would open two syllables"),
    Refusal("root_raa", "^(ʾ.|y.|mu)1r2ʾ", "رَأَى drops its hamza there (أَرَى, يَرَى)", roots="rʾy"),
    Refusal("hollow_hamza_participle", "^1.ā2.i3", "جَاءٍ moves its hamza", roots=".[wy]ʾ"),
    Refusal("hollow_colours", "^1.a2.i3.a$", "verbs of colours and defects keep the glide (عَوِرَ)",
            roots="ʿwr|ʿwǧ|ḥwl|ḥwr|swd|byḍ"),
    Refusal("hollow_form4_kept", "^(ʾa|ʾi|mu|yu|ʾu)1.2w", "form IV of this root keeps its glide (أَعْوَزَ)",
            roots="ʿwz|ḥwǧ|ʿwl"),
    Refusal("hollow_form10_kept", "st[au]1.2w|sti1.2w", "form X of this root keeps its glide (اِسْتَحْوَذَ)",
            roots="ḥwḏ|ṣwb|ǧwb"),
    Refusal("first_y_hamza", "1y2ʾ", "after its vowelless y the hamza is written in two ways (يَيْأَسُ, هَيْئَة)"),
    Refusal("defective_radiya", "^ma1.2.ū3", "the passive participle is مَرْضِيّ though the root ends in w", roots="rḍw"),
)  # fmt: skip

HAMZA: Final = (
    Rule("hamza_aa", "ʾa1ʾ(?=2)", "ʾā", "Of two hamzas in one syllable the second lengthens the vowel: آمَنَ."),
    Rule("hamza_ii", "ʾi1ʾ(?=2)", "ʾī", "Of two hamzas in one syllable the second lengthens the vowel: إِيمَان."),
    Rule("hamza_uu", "ʾu1ʾ(?=2)", "ʾū", "Of two hamzas in one syllable the second lengthens the vowel: أُومِنَ."),
)  # fmt: skip

FORM_VIII: Final = (
    Rule("form8_glide", "1[wy]t", "1tt", "A first radical w or y becomes t before the t of form VIII: اِتَّصَلَ."),
    Rule("form8_akhadha", "1ʾt", "1tt", "Form VIII of this root is اِتَّخَذَ, a fact about the word.", roots="ʾḫḏ"),
    Rule("form8_d", "1dt", "1dd", "The t of form VIII becomes d after d: اِدَّعَى."),
    Rule("form8_dh", "1ḏt", "1dd", "The t of form VIII becomes d after ḏ, which follows it: اِدَّخَرَ."),
    Rule("form8_z", "1zt", "1zd", "The t of form VIII becomes d after z: اِزْدَهَرَ."),
    Rule("form8_emphatic", "1([ṣḍṭẓ])t", r"1\1ṭ", "The t of form VIII becomes ṭ after ṣ ḍ ṭ ẓ: اِصْطَبَرَ. "
         "The further change that some make after ḍ and ẓ (اِظَّلَمَ for اِظْطَلَمَ) is not made."),
)  # fmt: skip

FIRST_GLIDE: Final = (
    Rule("first_w_drops", "^ya1w(?=2.[iī])", "ya", "w falls out of the imperfect in i: يَصِلُ."),
    Rule("first_glide_after_i", "i1[wy](?=2)", "ī", "A vowelless w or y after i makes it ī: إِيصَال."),
    Rule("first_glide_after_u", "u1[wy](?=2)", "ū", "A vowelless w or y after u makes it ū: مُوقِن."),
    Rule("first_glide_after_a", "(ma|ʾa|ista|musta|yasta|^ta)1([wy])(?=2)", r"\1\2",
         "A first radical w or y stays after a: مَوْعُود, أَوْصَلَ, اِسْتَوْصَلَ."),
    Rule("first_y_imperfect", "^ya1y(?=2)", "yay", "A first radical y stays in the imperfect: يَيْسِرُ."),
    Rule("first_w_imperfect_u", "^ya1w(?=2.u)", "yaw", "A first radical w stays in the imperfect in u: يَوْجُهُ."),
    Rule("first_glide_voiced", "1([wy])(?=[aiuāīū])", r"\1", "With a vowel a first w or y is a consonant: وَصَلَ."),
)  # fmt: skip
