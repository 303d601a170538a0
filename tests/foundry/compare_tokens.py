"""Compare Ember's ids with another tokenizer's on any number of random strings; nothing is recorded.

`python -m tests.foundry.compare_tokens MODEL.gguf --count 10000 --seed 1` compares with llama.cpp (extra `reference`);
with `--json tokenizer.json`, with Hugging Face's `tokenizers`. docs/explanation/tokenizers.md quotes its counts.
"""

import argparse
import unicodedata
from collections.abc import Callable
from pathlib import Path

from ember.tokenizer import Tokenizer, load_tokenizer
from ember.tokenizer.comparison import OtherTokenizer
from tests.foundry.token_strings import random_strings
from tests.foundry.token_texts import SPELT

Causes = dict[str, Callable[[str], bool]]
"""What may be seen in a text that two tokenizers take differently; the first that fits is counted."""
OF_LLAMA_CPP: Causes = {"spells </s>": lambda text: "</s>" in text}
OF_HUGGING_FACE: Causes = {
    "contracts with a long s": lambda text: "'ſ" in text,
    "holds what Unicode 14 does not know": lambda text: any(unicodedata.category(one) == "Cn" for one in text),
    "its NFC is another text": lambda text: unicodedata.normalize("NFC", text) != text,
    "holds U+2581": lambda text: "▁" in text,
    "spells [PAD151646]": lambda text: "[PAD151646]" in text,
    "begins with a space": lambda text: text.startswith(" "),
    "spells a special token": lambda text: any(one in text for one in SPELT),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    texts = random_strings(arguments.count, arguments.seed)
    tokenizer = load_tokenizer(arguments.model)
    for parse_special in (False, True):
        other = _hugging_face(arguments.json) if arguments.json else _llama_cpp(arguments.model)
        how = "parsed" if parse_special else "literal"
        different = _different(tokenizer, texts, other, parse_special=parse_special)
        causes = _causes(different, OF_HUGGING_FACE if arguments.json else OF_LLAMA_CPP)
        print(f"{arguments.model.name}, {how}: {len(texts)} strings, {len(different)} different {causes or ''}")


def _llama_cpp(path: Path) -> Callable[[str, bool], list[int]]:
    from tests.foundry.llama_cpp_tokens import LlamaCpp

    llama = LlamaCpp(path)
    return lambda text, special: llama.ids(text, special=special)


def _hugging_face(path: Path) -> Callable[[str, bool], list[int]]:
    other = OtherTokenizer(path)
    return lambda text, special: other.encode(text, add_special=False, parse_special=special)


def _different(
    tokenizer: Tokenizer, texts: list[str], other: Callable[[str, bool], list[int]], *, parse_special: bool
) -> list[str]:
    found = tokenizer.encode_ids(texts, add_special=False, parse_special=parse_special)
    return [text for text, ids in zip(texts, found, strict=True) if ids.tolist() != other(text, parse_special)]


def _causes(texts: list[str], causes: Causes) -> dict[str, int]:
    counts: dict[str, int] = {}
    for text in texts:
        cause = next((cause for cause, fits in causes.items() if fits(text)), "unexplained")
        counts[cause] = counts.get(cause, 0) + 1
    return counts


if __name__ == "__main__":
    main()
