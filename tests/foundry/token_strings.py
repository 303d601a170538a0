"""Random strings in numbers, on which tokenizers are compared with llama.cpp; `token_texts` has the chosen ones."""

from itertools import product
from random import Random

from tests.foundry.token_texts import arabic_text, general_text, mixed_text
from tests.foundry.vocab import byte_characters

SEED = 20261130
N_STRINGS = 2200
N_DENSE = 600
RUNS = ["a", "ه", "ا", "-", "=", "x", "\t", " ", "\n", "▁", "ab", "لا", "▁a", "ha", " \n", "'"]
"""What stands many times in a row: of equal pairs the leftmost must be joined."""
DENSE = [*"aAsStTlLdDrReEvVmMzZ139'!.,/_=|", "\n", "\r", "\t", " ", " ", *"ا١ِ،é中½…", "\u00a0", "\u2003", "🦙"]
"""Characters of every class that a pattern knows, and what contractions are made of."""


def make_strings() -> list[str]:
    """Return the strings, half of them Arabic with marks."""
    random = Random(SEED)
    arabic = [arabic_text(random) for _ in range(N_STRINGS // 2)]
    makers = [mixed_text, mixed_text, general_text, general_text, _any_unicode, _runs]
    return [*arabic, *(random.choice(makers)(random) for _ in range(N_STRINGS // 2))]


def random_strings(count: int, seed: int) -> list[str]:
    """Return other strings of all kinds, four in ten of them Arabic, for larger comparisons."""
    random = Random(seed)
    makers = [arabic_text] * 4 + [mixed_text, mixed_text, general_text, general_text, _any_unicode, _runs]
    return [random.choice(makers)(random) for _ in range(count)]


def make_dense_strings() -> list[str]:
    """Return strings of `DENSE`, in which every class stands beside every other."""
    random = Random(SEED + 1)
    return ["".join(random.choice(DENSE) for _ in range(random.randint(2, 40))) for _ in range(N_DENSE)]


def dense_merges() -> list[str]:
    """Return merges, in a random order, of any two characters of `DENSE` in GPT-2's alphabet, bytes of letters first.

    With them nearly every place where a text is not cut shows in its ids.
    """
    spelt = [_spelt(character) for character in dict.fromkeys(DENSE)]
    within = [f"{one[:at]} {one[at]}" for one in spelt for at in range(1, len(one))]
    between = [f"{left} {right}" for left in spelt for right in spelt]
    Random(SEED).shuffle(between)
    return list(dict.fromkeys([*within, *between]))


def dense_words() -> list[str]:
    """Return words that no merge makes: only a `pre` that looks for whole words first finds them."""
    return [_spelt("".join(three)) for three in product(" aSt1!اé", repeat=3)]


def _spelt(text: str) -> str:
    alphabet = byte_characters()
    return "".join(alphabet[byte] for byte in text.encode())


def _any_unicode(random: Random) -> str:
    ranges = [(0x20, 0x7F), (0x600, 0x700), (0xA0, 0x3000), (0x3000, 0xD800), (0xE000, 0x110000), (0x20, 0x21)]
    return "".join(chr(random.randrange(*random.choice(ranges))) for _ in range(random.randint(1, 25)))


def _runs(random: Random) -> str:
    run = random.choice(RUNS) * random.randint(2, 40)
    return (
        random.choice(["", "h", "ها", " "]) + run + random.choice(["", "x", "!", " "]) + random.choice(["", "b", "ا"])
    )
