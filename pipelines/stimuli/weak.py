"""Stated rules of sound change for the second and third radical: geminate, hollow and defective roots.

Notation and sources as in `rules`.
"""

from typing import Final

from pipelines.stimuli.rules import FIRST_GLIDE, FORM_VIII, HAMZA, Rule

_GEMINATE_ROOT: Final = r".([^wy])\1"
_HOLLOW_ROOT: Final = ".[wy][^wy]"
_END: Final = "(?=3.(aẗ)?$)"
"""Nominal ending: nothing or the ta marbuta."""


def _geminate(name: str, find: str, put: str, why: str, roots: str = _GEMINATE_ROOT) -> Rule:
    return Rule("geminate_" + name, find, put, why, roots)


def _hollow(name: str, find: str, put: str, why: str, roots: str = _HOLLOW_ROOT) -> Rule:
    return Rule("hollow_" + name, find, put, why, roots)


def _defective(name: str, find: str, put: str, why: str, roots: str = "..[wy]") -> Rule:
    return Rule("defective_" + name, find, put, why, roots)


GEMINATE: Final = (
    _geminate("doubled", r"(2(.)2\2[aiuāīū])3\2", r"\1\2",
              "A doubled second radical keeps the third apart: مُمَدِّد."),
    _geminate("long", r"(2(.)[āīū])3\2", r"\1\2", "A long vowel keeps the radicals apart: مَمْدُود."),
    _geminate("adjacent", r"(2(.))3\2", r"\1\2", "Neighbouring equal radicals are written as one with shadda: مَدّ."),
    _geminate("noun", r"^(1.a2(.)a)3\2$", r"\1\2", "The noun فَعَل keeps its equal radicals apart: عَدَد."),
    _geminate("verb", r"(?<=[aiuā])2(.)[aiu]3\1(?=[au]$)", r"2\1\1",
              "Between vowels the equal radicals of a verb join: مَدَّ, اِمْتَدَّ."),
    _geminate("participle", r"^(1.ā|ta1.ā|mu.*[aā])2(.)[aiu]3\2(?=(aẗ)?$)", r"\g<1>2\2\2",
              "The equal radicals of participles and of the masdar of form VI join: مَادّ, مُمْتَدّ, تَمَادّ."),
    _geminate("verb_shift", r"^(ʾ[au]|[iu]st[au]|y[au]|yasta)1(.)2(.)([aiu])3\3(?=[au]$)", r"\g<1>1\2\g<4>2\3\3",
              "After a consonant the vowel moves before the joined radicals of a verb: أَمَدَّ, يَمُدُّ, اِسْتَمَدَّ."),
    _geminate("noun_shift", r"^(ma|mu|musta)1(.)2(.)([ai])3\3(?=(aẗ)?$)", r"\g<1>1\2\g<4>2\3\3",
              "The vowel also moves in nouns that begin with m: مَقَرّ, مُمِدّ, مُسْتَمِدّ."),
    _geminate("instrument", r"^mi1([^wy])2(.)a3\2(?=(aẗ)?$)", r"mi1\1a2\2\2",
              "… and in nouns of instrument: مِقَصّ."),
    _geminate("elative", r"^ʾa1(.)2(.)a3\2$", r"ʾa1\1a2\2\2", "… and in the elative: أَشَدّ."),
)  # fmt: skip

_RECIPROCAL: Final = "zwǧ|ǧwr|ʿwr"

HOLLOW: Final = (
    _hollow("doubled", "2([wy])2[wy]", r"\1\1", "A doubled glide is strong: قَوَّمَ, تَقَوُّم."),
    _hollow("form3", "^(ta1.|mu1.|muta1.|yu1.|yata1.)ā2([wy])", r"\1ā\2",
            "Forms III and VI are strong: تَقَاوَمَ, مُقَاوِم."),
    _hollow("form3_past", "^(1.)ā2([wy])(?=a3.a$)", r"\1ā\2", "Forms III and VI are strong: قَاوَمَ."),
    _hollow("participle", f"^(1.)ā2[wy]i{_END}", r"\1āʾi",
            "The active participle of form I has a hamza for the glide: قَائِل."),
    _hollow("past", "^(1.)a2[wy][aiu](?=3.a$)", r"\1ā",
            "The glide of the past tense turns with its vowels into ā: قَالَ."),
    _hollow("past_passive", "^(1.)u2[wy]i(?=3.a$)", r"\1ī", "The passive of form I has ī: قِيلَ."),
    _hollow("form8_kept", "^((i|mu|ya)1..[ai])2w", r"\1w",
            "Form VIII of reciprocal meaning keeps w: اِزْدَوَجَ.", _RECIPROCAL),
    _hollow("form78_past", "^(in1.|i1..)a2[wy]a(?=3.a$)", r"\1ā", "Forms VII and VIII have ā: اِنْقَادَ, اِخْتَارَ."),
    _hollow("form78_participle", f"^(mun1.|mu1..)a2[wy][ai]{_END}", r"\1ā",
            "… and both their participles: مُخْتَار."),
    _hollow("form78_imperfect", "^(yan1.|ya1..)a2[wy]i(?=3.u$)", r"\1ā", "… and their imperfect: يَخْتَارُ."),
    _hollow("form78_masdar", "^(in1.|i1..)i2[wy](?=ā3.$)", r"\1iy",
            "Between i and ā the glide is y: اِقْتِيَاد, اِخْتِيَار."),
    _hollow("shift_past", "^(ʾa|ista)(1.)2[wy]a(?=3.a$)", r"\1\2ā",
            "After a consonant the glide gives its vowel away: أَقَامَ, اِسْتَقَامَ."),
    _hollow("shift_passive", "^(ʾu|ustu)(1.)2[wy]i(?=3.a$)", r"\1\2ī", "… in the passive as ī: أُقِيمَ."),
    _hollow("shift_participle_i", f"^(mu|musta)(1.)2[wy]i{_END}", r"\1\2ī",
            "… in the participles: مُقِيم, مُسْتَقِيم."),
    _hollow("shift_participle_a", f"^(mu|musta)(1.)2[wy]a{_END}", r"\1\2ā",
            "… in the participles: مُقَام, مُسْتَعَار."),
    _hollow("shift_masdar", "^(ʾi|isti)(1.)2[wy]ā(3.)$", r"\1\2ā\3aẗ",
            "The masdar of IV and X makes up for the glide by ة: إِقَامَة."),
    _hollow("shift_imperfect_u", "^ya(1.)2wu(?=3.u$)", r"ya\1ū", "… in the imperfect: يَقُولُ."),
    _hollow("shift_imperfect_i", "^ya(1.)2yi(?=3.u$)", r"ya\1ī", "… in the imperfect: يَبِيعُ."),
    _hollow("shift_imperfect_a", "^(y[au]|y[au]sta)(1.)2[wy]a(?=3.u$)", r"\1\2ā", "… in the imperfect: يَخَافُ."),
    _hollow("shift_imperfect_4", "^(yu|yasta)(1.)2[wy]i(?=3.u$)", r"\1\2ī", "… in the imperfect: يُقِيمُ."),
    _hollow("passive_w", "^ma(1.)2wū(?=3)", r"ma\1ū", "The passive participle drops the glide: مَقُول."),
    _hollow("passive_y", "^ma(1.)2yū(?=3)", r"ma\1ī", "The passive participle of roots with y has ī: مَبِيع."),
    _hollow("place_a", f"^ma(1.)2[wy]a{_END}", r"ma\1ā", "Nouns of place have ā for wa, ya: مَقَام."),
    _hollow("place_i", f"^ma(1.)2yi{_END}", r"ma\1ī", "Nouns of place have ī for yi: مَسِير."),
    _hollow("instrument", "^(mi1.)2([wy])(?=[aā]3.(aẗ)?$)", r"\1\2",
            "Nouns of instrument keep the glide: مِقْوَد, مِكْيَال."),
    _hollow("elative", "^(ʾa1.)2([wy])(?=a3.$)", r"\1\2", "The elative keeps the glide: أَطْوَل."),
    _hollow("fal", f"^(1.a)2([wy]){_END}", r"\1\2", "فَعْل keeps the glide: قَوْل."),
    _hollow("fil", f"^(1.)i2[wy]{_END}", r"\1ī", "فِعْل has ī: عِيد."),
    _hollow("ful", f"^(1.)u2w{_END}", r"\1ū", "فُعْل has ū for uw: رُوح."),
    _hollow("before_aa", "^(1.a)2([wy])(?=ā3.$)", r"\1\2", "فَعَال keeps the glide: صَوَاب."),
    _hollow("before_ii", "^(1.a)2w(?=ī3.$)", r"\1w", "فَعِيل keeps w: طَوِيل."),
    _hollow("fiaal_y", "^(1.i)2y(?=ā3.$)", r"\1y",
            "فِعَال keeps y: خِيَار; with w usage is divided (قِيَام, جِوَار)."),
    _hollow("masdar2", "^(ta1.)2([wy])(?=ī3.$)", r"\1\2", "The masdar of form II keeps the glide: تَقْوِيم."),
)  # fmt: skip

DEFECTIVE: Final = (
    _defective("past_w", "^(1.a2.)a3wa$", r"\1ā", "The past of form I with w ends in ā written as alif: دَعَا."),
    _defective("past", "a3[wy]a$", "á", "Else the past after a ends in ā written as alif maqsura: رَمَى, أَعْطَى."),
    _defective("past_i", "i3[wy]a$", "iya", "After i the past has y: رَضِيَ, دُعِيَ."),
    _defective("past_u", "u3wa$", "uwa", "After u the past has w: سَرُوَ."),
    _defective("participle", "(?<!^ma1.2.)i3[wy]$", "iⁿ",
               "The indefinite participle loses the glide to the tanwin: رَامٍ, دَاعٍ."),
    _defective("passive", "^(m.*)a3[wy]$", r"\1aⁿ",
               "Indefinite nouns with m that end in a have ى and tanwin: مُعْطًى."),
    _defective("elative", "^(ʾa1.2.)a3[wy]$", r"\1á", "The elative ends in ى without tanwin: أَعْلَى."),
    _defective("after_aa", "ā3[wy]$", "āʾ", "After ā the glide becomes a hamza: إِعْطَاء, بِنَاء."),
    _defective("feminine_a", "a3[wy]aẗ$", "āẗ", "Before the ta marbuta awa and aya become ā: مُلَاقَاة."),
    _defective("feminine_i", "i3[wy]aẗ$", "iyaẗ", "Before the ta marbuta i keeps y: دَاعِيَة."),
    _defective("mafuul_y", "^(ma1.2.)ū3y(?=$|aẗ$)", r"\1iyy", "ū and y become iyy: مَرْمِيّ."),
    _defective("mafuul_w", "^(ma1.2.)ū3w(?=$|aẗ$)", r"\1uww", "ū and w become uww: مَدْعُوّ."),
    _defective("fail", "^(1.a2.)ī3[wy](?=$|aẗ$)", r"\1iyy", "فَعِيل ends in iyy: عَلِيّ, غَنِيّ."),
    _defective("fauul", "^(1.a2.)ū3w$", r"\1uww", "فَعُول with w ends in uww: عَدُوّ."),
    _defective("masdar2", "^(ta1.2.)ī3[wy]$", r"\1iyaẗ", "The masdar of form II is تَفْعِلَة: تَسْمِيَة."),
    _defective("masdar56", "^(ta.*)u3[wy]$", r"\1iⁿ",
               "The masdars of V and VI end like participles: تَرَجٍّ, تَلَاقٍ."),
    _defective("imperfect_i", "^(y.*)i3[wy]u$", r"\1ī", "The imperfect after i ends in ī: يَرْمِي."),
    _defective("imperfect_u", "^(y.*)u3wu$", r"\1ū", "The imperfect after u ends in ū: يَدْعُو."),
    _defective("imperfect_a", "^(y.*)a3[wy]u$", r"\1á", "The imperfect after a ends in ى: يَرْضَى."),
    _defective("fal_wy", "^(1.a)2w3y$", r"\1yy", "Neighbouring w and y join as yy: طَيّ."),
    _defective("after_consonant", "^(1.[aiu]2.)3([wy])(?=$|aẗ$)", r"\1\2",
               "After a consonant the glide stays: رَمْي, غَزْو.",
               "..w|.[^wy]y"),
)  # fmt: skip

TAFILA: Final = Rule(
    "hamzated_masdar2",
    "^(ta1.2.)ī3ʾ$",
    r"\1i3ʾaẗ",
    "Roots with a last hamza have تَفْعِلَة as masdar of form II: تَهْنِئَة.",
    roots=".[^ʾ]ʾ",
)

ORDER: Final = (*HAMZA, *FORM_VIII, TAFILA, *GEMINATE, *HOLLOW, *DEFECTIVE, *FIRST_GLIDE)
"""All rules in the order in which they apply. Geminates come before first glides: a vowel moves to a w first (يَوَدُّ)."""
