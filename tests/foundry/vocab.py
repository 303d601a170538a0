"""A small byte-level BPE vocabulary for made-up models: any text has tokens, an Arabic letter is one token."""

from dataclasses import dataclass
from functools import lru_cache

NORMAL, CONTROL, UNUSED = 1, 3, 5
BYTE_TOKENS = 256
SPECIALS = ("<|begin|>", "<|end|>")
_ARABIC = "ابتثجحخدذرزسشصضطظعغفقكلمنهويءآأؤإئةى" + "َُِّْ" + "ًٌٍ"
_LATIN = "etaoinshrdlucmfwypvbgk"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the `tokenizer.ggml.*` arrays of a `gpt2`-model file hold; the two special tokens are the last ids."""

    tokens: list[str]
    types: list[int]
    merges: list[str]
    bos_id: int
    eos_id: int


@lru_cache(maxsize=1)
def byte_characters() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte, in the order of its vocabulary's first 256 tokens."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = [byte for byte in range(BYTE_TOKENS) if byte not in set(kept)]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + n) for n, byte in enumerate(moved)}


def _spelled(text: str) -> str:
    return "".join(byte_characters()[byte] for byte in text.encode())


def _merge_pairs() -> list[tuple[str, str]]:
    """Merges in rank order: letters from their two bytes, a space with a letter, then pairs of letters."""
    letters = [_spelled(letter) for letter in _ARABIC]
    space = _spelled(" ")
    pairs = [(spelled[0], spelled[1]) for spelled in letters]
    pairs += [(space, letter) for letter in _LATIN[:12]]
    pairs += [(letters[_ARABIC.index("ا")], letters[_ARABIC.index("ل")])]
    pairs += [(space, letter) for letter in letters[:28]]
    pairs += [(a, b) for a in _LATIN[:8] for b in _LATIN if a != b]
    pairs += [(a, b) for a in letters[:28] for b in letters[:28] if a != b and (a, b) not in pairs]
    return pairs


def tiny_vocabulary(size: int) -> Vocabulary:
    """Make exactly `size` >= 258 tokens: 256 bytes, merges, unused fillers where merges run out, BOS, EOS."""
    room = size - BYTE_TOKENS - len(SPECIALS)
    if room < 0:
        raise ValueError(f"vocabulary of {size} tokens: 256 bytes and two special tokens need at least 258")
    pairs = _merge_pairs()[:room]
    fillers = [f"<|unused{n}|>" for n in range(room - len(pairs))]
    tokens = [*byte_characters().values(), *("".join(pair) for pair in pairs), *fillers, *SPECIALS]
    types = [NORMAL] * (BYTE_TOKENS + len(pairs)) + [UNUSED] * len(fillers) + [CONTROL] * len(SPECIALS)
    return Vocabulary(tokens, types, [" ".join(pair) for pair in pairs], bos_id=size - 2, eos_id=size - 1)
