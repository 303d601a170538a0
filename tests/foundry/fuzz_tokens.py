"""Compare with llama.cpp on random vocabularies: `python -m tests.foundry.fuzz_tokens --count 400`.

Needs the extra `reference`; nothing is recorded. The vocabularies are small and unlikely: scores that are equal,
characters that are no tokens, tokens that nothing reaches, newlines inside, unused and user-defined ones.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

from ember.tokenizer import load_tokenizer
from tests.foundry.llama_cpp_tokens import LlamaCpp
from tests.foundry.tokenizer_files import NORMAL, UNUSED, USER_DEFINED, VocabularyFile, gemma4, sentencepiece

ALPHABETS = ("ab▁", "abc▁é", "ab▁\n", "aا▁ِ", "abcdef▁")
SCORES = (-1.0, -2.0, -3.0, -4.0, 0.0, -1e9)
STRINGS = 60
"""Of each vocabulary."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random = Random(arguments.seed)
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.count):
            alphabet = random.choice(ALPHABETS)
            make = _sentencepiece if random.random() < 0.6 else _gemma4
            different += _different(make(random, alphabet), alphabet, random, Path(folder) / "made.gguf")
    print(f"{arguments.count} vocabularies, {arguments.count * STRINGS} strings, {different} different")


def _different(file: VocabularyFile, alphabet: str, random: Random, path: Path) -> int:
    file.write(path)
    llama, tokenizer = LlamaCpp(path), load_tokenizer(path)
    characters = alphabet.replace("▁", " ") + random.choice(["", "▁", "x"])
    found = 0
    for _ in range(STRINGS):
        text = "".join(random.choice(characters) for _ in range(random.randint(0, 40)))
        for special in (False, True):
            ids = tokenizer.encode(text, add_special=False, parse_special=special).ids
            if ids != llama.ids(text, special=special):
                found += 1
                print(f"{text!r}: {ids}, llama.cpp {llama.ids(text, special=special)}, {file}")
    return found


def _some(random: Random, alphabet: str, lengths: Sequence[int], count: int) -> list[str]:
    return ["".join(random.choice(alphabet) for _ in range(random.choice(lengths))) for _ in range(count)]


def _user_defined(random: Random, alphabet: str, taken: Sequence[str]) -> list[tuple[str, int]]:
    """Return spellings of different lengths: of equal ones llama.cpp's order is its library's."""
    some = _some(random, alphabet.replace("▁", " "), (2, 3, 4), random.randint(0, 3))
    by_length = {len(text.encode()): text for text in some if text not in taken}
    return [(text, USER_DEFINED) for text in by_length.values()]


def _sentencepiece(random: Random, alphabet: str) -> VocabularyFile:
    characters = [one for one in alphabet if random.random() < 0.85]
    made = _some(random, alphabet, (2, 2, 2, 3, 3, 4, 5, 6), random.randint(1, 40))
    tokens = list(dict.fromkeys([*characters, *made]))
    random.shuffle(tokens)
    scored = [(token, random.choice([*SCORES, -5 * random.random()])) for token in tokens]
    file = sentencepiece(scored, _user_defined(random, alphabet, tokens)).but(add_space_prefix=random.random() < 0.5)
    unused = random.choice([0.0, 0.0, 0.1])
    types = [UNUSED if kind == NORMAL and random.random() < unused else kind for kind in file.types or ()]
    return VocabularyFile(file.tokens, None, types, file.keys)


def _gemma4(random: Random, alphabet: str) -> VocabularyFile:
    merges = [f"{alphabet[0]} {alphabet[1]}"]
    symbols = [*alphabet, alphabet[:2]]
    for _ in range(random.randint(1, 30)):
        left, right = random.choice(symbols), random.choice(symbols)
        if len(left + right) < 9 and (left + right).count("\n") in (0, len(left + right)):
            merges.append(f"{left} {right}")
            symbols.append(left + right)
    random.shuffle(merges)
    return gemma4(list(dict.fromkeys(merges)), _user_defined(random, alphabet, symbols))


if __name__ == "__main__":
    main()
