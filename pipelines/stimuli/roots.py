"""Roots: what class one belongs to, a list of real ones, and invented ones.

The real roots head entries of the common dictionaries of written Arabic. An invented root is only known to be absent
from that list; some of them may exist in a large dictionary.
"""

import hashlib
from collections.abc import Collection, Iterator
from itertools import product
from typing import Final, Literal

from pipelines.stimuli.translit import CONSONANTS, MorphologyError, radicals

RootClass = Literal["strong", "assimilated", "hollow", "defective", "geminate", "hamzated", "doubly_weak"]

_REAL: Final[dict[RootClass, str]] = {
    "strong": """
        كتب درس علم فتح جمع صبر ضرب زهر طلع قتل جلس دخل خرج نظر سمع شرب ركب لعب ضحك فهم حفظ نصر قطع كسر جرح ذهب رجع رسل
        سلم حمد شكر عبد سجد ركع صدق كذب غفر رحم حكم ظلم عدل ملك خلق رزق سكن نزل حمل بحث طلب قبل بعد قرب كبر صغر كثر حسن
        قبح جمل سرق حرق غرق طبخ خبز زرع حصد نبت سبح سبق لحق تبع صحب شرح ذكر نسج غسل لبس خلع كشف ستر نشر طبع رسم نقش نقل
        حرك سحب جذب دفع رفع خفض قلب فصل جدل خصم سفر هجر عمل شغل كسب خسر ربح فقد نفع ضعف قدر عجز صنع فعل ترك بدل حرص حزن
        فرح غضب بسم صرخ همس نطق خطب لفظ شعر نثر عرف جهل فكر ظهر بطن كتم حسب عقد حلف شهد قسم فرض نذر نقص كمل صلح فسد طهر
        نجس زحم زجر زعم زلق ذبح ذبل ذخر دخن دفن دمج دهن ثقب ثقل طرد طرق ضبط ضجع صدم صعد صرف ظفر ضمن طحن زلف ظعن صنف صفح
        طعن طلق ضغط زحف دحر دمر حضر حجز حفر خلط خلف خضع عزل عطف عقل عنق غزل غلب فجر فحص قدم قذف كرم لمس لمع مزج مسح منع
        نجح نزع نسخ هدم هرب هزم هبط لزم نبذ نقض عكس عصر فرق فضل""",
    "assimilated": """
        وصل وعد وجد وزن وقف وضع ورث وقع ولد وصف وحد وعظ وثق ورد وهب وجه وكل وسع وضح وقت ودع وفق وقر وهم وسم ورق وصم وجب
        وجع وحش وفد وقد وكب يسر يقن يبس يقظ يمن""",
    "hollow": """
        قول قوم عود نوم صوم زور طوف ذوق فوز قود سوق صون لوم موت جوع خوف روح دور جول كون عون طول طوع جوز دوم فوق زوج ذوب
        شوق صوغ لوذ بوح نوب توب بيع سير عيش غيب ميل صيد خير زيد بيت طير ضيف كيل سيل شيع غير ميز بين دين هيب ضيع قيس شيد
        زيف حيد ضيق""",
    "defective": """
        دعو غزو رجو شكو تلو نجو سمو علو دنو عفو خلو محو صفو كسو عدو زكو صحو سهو بدو عطو رشو جلو رمي بني جري مشي هدي قضي
        سعي بكي حكي سقي شفي رعي نهي كفي خشي نسي بقي لقي عصي طلي فني جني حمي خفي مضي رقي غني فدي عمي كري صلي
        ذري دري ضني""",
    "geminate": """
        مدد ردد شدد عدد حبب ظنن مرر حلل ضرر سدد قصص حجج شكك دقق صدد جدد حدد خفف فكك ضمم همم عزز ذلل كفف مسس حسس غشش صحح
        ظلل طلل ضلل زفف قلل تمم سرر جرر حرر""",
    "hamzated": """
        أكل أخذ أمر أمن أمل أثر أجر أدب أذن أسر ألف أنس سأل رأس بأس سأم دأب رأف لأم زأر ثأر شأم قرأ بدأ ملأ هنأ نشأ خطأ
        برأ لجأ كفأ فجأ جرأ هدأ طرأ عبأ""",
    "doubly_weak": """
        طوي روي نوي شوي كوي هوي غوي لوي وفي وقي وعي ولي وري وشي أتي أبي نأي رأي أسو سوأ ضوأ نوأ جيأ شيأ""",
}  # fmt: skip


def root_class(root: str) -> RootClass:
    """Name a root's class; of w, y and hamza, two with a weak one among them make it doubly weak."""
    first, second, third = radicals(root)
    glides = [letter in "wy" for letter in (first, second, third)]
    if sum(glides) > 1 or (any(glides) and "ʾ" in (first, second, third)):
        return "doubly_weak"
    if second == third:
        return "geminate"
    if any(glides):
        names: tuple[RootClass, ...] = ("assimilated", "hollow", "defective")
        return names[glides.index(True)]
    return "hamzated" if "ʾ" in (first, second, third) else "strong"


def real_roots() -> tuple[str, ...]:
    """List the real roots, transliterated (`ktb`), class by class in a fixed order."""
    return tuple("".join(radicals(root)) for group in _REAL.values() for root in group.split())


_PLACES: Final = ("bfm", "lnr", "tdṯḏszṣḍṭẓš", "kqǧ", "ʾhʿḥġḫ")
_STRONG_LETTERS: Final = "".join(letter for letter in CONSONANTS if letter not in "ʾwy")


def is_harmonic(root: str) -> bool:
    """Tell whether a root keeps apart radicals of one place of articulation.

    The rule after J. Greenberg, The patterning of root morphemes in Semitic (1950): neighbouring radicals of real
    roots hardly ever share a place (lips; l n r; other coronals; k q ǧ; throat), unless the second and third are equal,
    and the first differs from the third.
    """
    first, second, third = radicals(root)
    return first != third and not _near(first, second) and (second == third or not _near(second, third))


def _near(left: str, right: str) -> bool:
    return any(left in place and right in place for place in _PLACES)


def nonce_roots(count: int, *, seed: int = 0, avoid: Collection[str] = (), letters: str = "C C C") -> tuple[str, ...]:
    """Invent `count` roots: harmonic, not real, not in `avoid`; the same for the same arguments, on every machine.

    `letters` gives each radical's choice: C for any strong consonant, the consonants themselves ("C wy C" makes hollow
    roots), or, for the third, = for the second once more ("C C =" makes geminates).
    Raises `MorphologyError` if there are not so many.
    """
    taken = {*real_roots(), *("".join(radicals(root)) for root in avoid)}
    ranked = sorted(_candidates(letters, taken), key=lambda root: hashlib.sha256(f"{seed}:{root}".encode()).digest())
    if len(ranked) < count:
        raise MorphologyError(f"{count} invented roots {letters!r} asked for, only {len(ranked)} exist; ask for fewer")
    return tuple(ranked[:count])


def _candidates(letters: str, taken: Collection[str]) -> Iterator[str]:
    choices = [_STRONG_LETTERS if choice in ("C", "=") else choice for choice in letters.split()]
    for triple in product(*choices):
        root = "".join(triple)
        if (triple[1] == triple[2]) == letters.endswith("=") and root not in taken and is_harmonic(root):
            yield root
