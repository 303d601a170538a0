"""What is odd about a vocabulary without making it unusable: one line each, kept in a run's record."""

import re
from collections.abc import Iterator
from typing import Final

from ember.tokenizer.encoder import Algorithm
from ember.tokenizer.vocabulary import Bos, TokenType, Vocabulary

_LOOKS_CONTROL: Final = re.compile(
    rb"<\|[^|\s]+\|?>|<[^|<>\s]+\|>|</?s>|<(?:unk|pad|bos|eos|mask|start_of_turn|end_of_turn)>"
)
"""Spellings that files use for control tokens."""
_SHOWN: Final = 5


def oddities(vocabulary: Vocabulary, bos: Bos, algorithm: Algorithm) -> Iterator[str]:
    """Yield what is odd."""
    yield from vocabulary.warnings
    if algorithm.caution:
        yield algorithm.caution
    if algorithm.bos_always and vocabulary.add_bos is False:
        yield (
            f"tokenizer.ggml.add_bos_token is false, but model {vocabulary.model} needs a BOS: one is added, as in "
            "llama.cpp"
        )
    customary = algorithm.bos_customary if vocabulary.add_bos is None or algorithm.bos_always else vocabulary.add_bos
    if customary and bos.token is None:
        yield "no BOS is added, though one is customary for this tokenizer: the file names no usable BOS token"
    entries = vocabulary.tokens[:]
    normal = vocabulary.types == TokenType.NORMAL
    looking = [index for index, entry in enumerate(entries) if normal[index] and _LOOKS_CONTROL.fullmatch(entry)]
    if looking:
        yield f"{_some(entries, looking)}: typed NORMAL though spelt like control tokens; the file's types decide"
    empty = [index for index, entry in enumerate(entries) if not entry]
    if empty:
        yield f"{len(empty)} tokens, {empty[0]} the first, have no spelling: no text gives them"
    merges = vocabulary.merges or ()
    doubled = len(merges) - len(set(merges))
    if doubled:
        yield f"{doubled} merges stand more than once: the first counts, as in llama.cpp"


def _some(entries: list[bytes], which: list[int]) -> str:
    shown = ", ".join(f"{index} {entries[index].decode(errors='replace')!r}" for index in which[:_SHOWN])
    return f"{len(which)} tokens ({shown}{', …' if len(which) > _SHOWN else ''})"
