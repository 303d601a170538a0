"""Texts on which tokenizers differ: half Arabic, half of everything else that goes wrong. Made once, then committed."""

from random import Random

SEED = 20261129
N_RANDOM = 190
"""Random texts of each half."""

LETTERS = "ابتثجحخدذرزسشصضطظعغفقكلمنهوي"
HAMZA = ["ء", "آ", "أ", "ؤ", "إ", "ئ", "ا\u0653", "ا\u0654", "و\u0654", "ا\u0655", "ي\u0654", "ٱ", "ى", "ة", "ۃ"]
PERSIAN = ["ک", "ی", "گ", "چ", "پ", "ژ", "ۀ", "ہ", "ھ", "ے", "ݣ", "ڤ"]
MARKS = ["\u064e", "\u064f", "\u0650", "\u0652", "\u064b", "\u064c", "\u064d", "\u0651", "\u0670", "\u0653", "\u0657"]
QURANIC = ["\u06d6", "\u06da", "\u06e1", "\u06e5", "\u06e6", "\u06ed", "\u08f0", "\u08d4", "\u0615", "\ufdfa", "\ufdfd"]
LAM_ALEF = ["لا", "لأ", "لإ", "لآ", "\ufefb", "\ufef7", "\ufef9", "\ufef5", "ل\u0640ا", "ل\u0651ا"]
PRESENTATION = ["\ufe8d", "\ufe91", "\ufedb\ufe98\ufe8e\ufe8f", "\ufeb3\ufefc\ufee1", "\ufb50", "\ufbfd", "\ufe7d"]
DIGITS = [
    "0123",
    "٠١٢٣٤٥",
    "۰۱۲۳",
    "٣٫١٤",
    "١٬٠٠٠",
    "1,000.50",
    "٪50",
    "۱۴۰۳/۰۱/۰۱",
    "२०२४",
    "１２３",
    "²³",
    "½",
    "Ⅻ",
    "④",
]
BIDI = ["\u200e", "\u200f", "\u061c", "\u202a", "\u202b", "\u202c", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"]
INVISIBLE = ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u180e", "\u034f", "\ufe0f", "\u0640"]
SPACES = [chr(point) for point in (9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))] + [
    chr(point) for point in (0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
]
"""All 25 characters with the property White_Space."""
CONTROLS = ["\x00", "\x01", "\x04", "\x06", "\x1b", "\x1c", "\x1f", "\x7f", "\x80", "\x9f", "\r", "\x08"]
EMOJI = ["🦙", "👩‍👩‍👧‍👦", "👨🏽‍💻", "🏳️‍🌈", "🇸🇦🇪🇬", "1️⃣", "❤️", "☺", "🧑‍🎓📚", "\U000e0067\U000e0062"]
OTHER = [
    "a\u0301",
    "á",
    "e\u0308\u0323",
    "ﬁ",
    "ß",
    "İ",
    "ſ",
    "ǅ",
    "नमस्ते",
    "বাংলা",
    "ไทย",
    "한국어",
    "\u1112\u1161\u11ab",
    "日本語",
]
OTHER += ["Привет", "Ελληνικά", "שָׁלוֹם", "ᏣᎳᎩ", "𐐷", "𝕏𝟚", "🄰", "ꙮ", "\u1c8a", "\U00010d4b", "\U00010d41", "\U0001e5f3"]
OTHER += ["\ue000", "\ufffd", "\uffff", "\U000f0000", "\U0010ffff", "\u0378", "\U000e0001", "ʼ", "’", "‘", "´"]
PUNCTUATION = [
    "،",
    "؛",
    "؟",
    "«",
    "»",
    "﴿",
    "﴾",
    ".",
    "!",
    "...",
    "--",
    "(",
    ")",
    "'",
    '"',
    "/",
    "\\",
    "#",
    "&&",
    "_",
    "$",
]
CONTRACTIONS = ["'s", "'S", "'ll", "'LL", "'Re", "'vE", "'m", "'d", "'T", "'ſ", "'x", "''s", " 't", "’s", "'ľ", "'R"]
SPELT = ["<|im_end|>", "<|endoftext|>", "<|im_start|>user", "<|eot_id|>", "<|begin_of_text|>", "<s>", "</s>", "<unk>"]
SPELT += ["<|end|>", "<|begin|>", "<|begin|><|end|>", "<tool>", "[PAD151646]", "<|im_end |>", "<|im_end|", "|im_end|>"]
SPELT += ["ab-bc-d", "<|end|>>", "<filename>", "<|end", "<|END|>"]
WORDS = [
    "the",
    "The",
    "HELLO",
    "don't",
    "I'll",
    "naïve",
    "x1y2",
    "camelCase",
    "snake_case",
    "3.14",
    "e.g.",
    "Viet",
    "tokens",
]

ARABIC = [
    "كتب الطالب الدرس في الدفتر.",
    "كِتَاب",
    "كتاب",
    "المُدَرِّسَةُ الْجَدِيدَةُ تَكْتُبُ",
    "المدرِّسةُ",
    "ش\u0651\u064e",
    "ش\u064e\u0651",
    "شّ َ",
    "بِسْمِ اللَّهِ الرَّحْمَٰنِ الرَّحِيمِ",
    "\u0671\u0644\u0644\u0651\u064e\u0647\u0650",
    "الحمد لله رب العالمين ۝١",
    "كـــتـــاب",
    "مـ\u064eدرسة",
    "لا إله إلا الله",
    "\ufefb\ufef7\ufef9\ufef5 لا لأ لإ لآ",
    "\ufee3\ufeae\ufea3\ufe92\ufe8e",
    "ﷺ ﷲ ﷼ ﷽",
    "استَخْرَجَ اسْتِخْراجًا فهو مُسْتَخْرِجٌ",
    "الجذر: ك-ت-ب، الوزن: فاعِل؛ أليس كذلك؟",
    "قال: «اقرأ!» ثم سكت…",
    "السعر ١٢٣٫٤٥ ريال (≈ 32.92 USD)",
    "عام ١٤٤٨هـ / 2026م",
    "هاتف: +966-50-123-4567",
    "٠١٢٣٤٥٦٧٨٩ ۰۱۲۳۴۵۶۷۸۹ 0123456789",
    "البريد name@example.com والموقع https://example.com/كتاب?q=١",
    "النص العربي with English inside ثم عربي",
    "\u202bكتاب\u202c (book) \u2067كتب\u2069 books",
    "كتاب\u200f",
    "كتاب\u061c",
    "كتاب\u200c",
    "\ufeffكتاب",
    "می‌خواهم کتاب‌هایم",
    "گرگ و میش، پژمان",
    "یہ اردو ہے۔",
    "كتاب\u00a0جديد\u2009صغير\u3000كبير",
    "سطر\nسطر\r\nسطر\u0085سطر\u2028سطر",
    "   كتاب   ",
    "\tكتاب\t\tكتب\n\n",
    "كتاب\n",
    "  كتاب",
    " كتب",
    "ك ت ب",
    "ككككككككككككككككككككككككككككككككككك",
    "هههههههههه 😂😂😂",
    "أُؤُئِء آ ٱ إ أ ا\u0654 ا\u0655 ا\u0653",
    "\u0623 \u0627\u0654 \u0643 \u06a9 \u064a \u06cc \u0649",
    "a\u064eb\u0651c",
    "\u064e\u064f\u0650",
    " \u064eكتب",
    "\u0640\u0640\u0640",
    "كتاب<|im_end|>كتب",
    "<|im_start|>مستخدم\nما جذر «مكتوب»؟<|im_end|>\n<|im_start|>مساعد\n",
    "٣٤٥",
    "1٢٣4٥٦78٩",
    "كتاب1كتاب٢",
    "قلبي❤️وطني🇸🇦",
    "عَ\u200dرَ\u200cبِ\u200eي",
    "\u06e5\u06e6\u06ed\u08f0\u08f1",
    "ٱلْكِتَـٰبَ",
    "وَٱلَّيْلِ إِذَا يَغْشَىٰ ۝١ وَٱلنَّهَارِ إِذَا تَجَلَّىٰ ۝٢",
]
GENERAL = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\n\n\n",
    "\t",
    "\t\n",
    "\r\n",
    "\r\n\r\n",
    "!\u0085",
    "a\u00a0b",
    "\u0085\u0085x",
    " \u3000\u2003 x",
    "a \n b \r\n c\n\n  d",
    "a\r\rb\n\rc",
    "Hello, world!",
    " Hello   World  !",
    "I'm you're THEY'LL he'D it's 'tis 'S 'ſ ’s",
    "345",
    "1000",
    "12345678901234567890",
    "3.14159e-10 0xFF 1_000",
    "a\u0301 \u00e1 e\u0301e",
    "हिन्दी में लिखो, बাংলা লেখা",
    "🦙.cpp",
    "👩‍👩‍👧‍👦 👨🏽‍💻 🏳️‍🌈 🇸🇦",
    "A<|im_end|>B",
    "the<|endoftext|>",
    "<s> </s> <unk> <pad>",
    "<|im_end |>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "def f(x):\n    return x**2  # كود\n\n\nprint(f(3))\n",
    '{"key": ["value", 1, null], "مفتاح": "قيمة"}',
    "x\x00y",
    "\x01\x02\x03",
    "\x1c\x1d\x1e\x1f",
    "\ufeffBOM",
    "zero\u200bwidth\u200djoin\u2060er",
    "\u180e \u200b\u2028\u2029",
    "abc xabc abcabc",
    " Việt Viet\u0302\u0323 Viê\u0323t",
    "ÀÉÎÕÜ àéîõü Œœ Ææ",
    "----====####~~~~",
    "!!!???...,,,;;;",
    "$100 €50 £20 ¥10 ﷼5",
    "\u1c89\u1c8a \ua7cb \U000105c0 1\U00010d40 \U0001e5f1",
]
LONG = [
    "ا" * 1200,
    " " * 1200,
    "\n" * 900,
    "ab" * 500,
    "1" * 700,
    "كِ" * 500,
    "\t " * 400,
    "🦙" * 200,
    "!" * 1000,
    " a" * 400,
]


def make_texts() -> list[str]:
    """Return the texts, the Arabic half first; none stands twice."""
    random = Random(SEED)
    arabic = [*ARABIC, *(arabic_text(random) for _ in range(N_RANDOM))]
    general = [*GENERAL, *LONG, *SPELT, *CONTRACTIONS, *(f"!{space}x{space}{space}y" for space in SPACES)]
    general += [general_text(random) for _ in range(N_RANDOM)]
    arabic += [mixed_text(random) for _ in range(len(general) - len(arabic))]
    return list(dict.fromkeys([*arabic, *general]))


def _word(random: Random) -> str:
    letters = [random.choice(LETTERS) for _ in range(random.randint(1, 6))]
    style = random.random()
    if style < 0.4:
        letters = [letter + random.choice(["", *MARKS, "\u0651" + random.choice(MARKS)]) for letter in letters]
    elif style < 0.5:
        letters = [letter + "\u0640" * random.choice([0, 0, 1, 3]) for letter in letters]
    if random.random() < 0.4:
        extra = random.choice([HAMZA, PERSIAN, QURANIC, LAM_ALEF, PRESENTATION, BIDI, INVISIBLE])
        letters.insert(random.randint(0, len(letters)), random.choice(extra))
    return ("ال" if random.random() < 0.3 else "") + "".join(letters)


def _joined(random: Random, words: list[str]) -> str:
    gaps = [" ", " ", " ", " ", "  ", "", "\n", random.choice(SPACES), random.choice(BIDI)]
    return "".join(word + random.choice(gaps) for word in words)


def arabic_text(random: Random) -> str:
    extra = [*DIGITS, *PUNCTUATION]
    return _joined(
        random, [random.choice([_word(random)] * 4 + [random.choice(extra)]) for _ in range(random.randint(1, 7))]
    )


def mixed_text(random: Random) -> str:
    pools = [WORDS, DIGITS, PUNCTUATION, BIDI, EMOJI, SPELT, OTHER]
    return _joined(
        random, [random.choice([_word(random)] * 2 + [random.choice(random.choice(pools))]) for _ in range(6)]
    )


def general_text(random: Random) -> str:
    pools = [WORDS, WORDS, DIGITS, PUNCTUATION, CONTRACTIONS, SPACES, CONTROLS, EMOJI, OTHER, OTHER, SPELT, INVISIBLE]
    return "".join(
        random.choice(random.choice(pools)) + random.choice(["", "", " ", "  "]) for _ in range(random.randint(2, 9))
    )
