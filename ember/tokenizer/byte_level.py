"""Byte-level BPE (`tokenizer.ggml.model = gpt2`): the merging, done by the `tokenizers` package from the file's merges.

This module imports that package; `Tokenizer` imports this module when the first text is encoded.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Engine

from ember.errors import TokenizerError
from ember.tokenizer.alphabet import CHARACTER_OF
from ember.tokenizer.pretokenizers import PreTokenizer
from ember.tokenizer.vocabulary import Vocabulary


class ByteLevelBPE:
    """Encodes pieces of text in which no token is spelt out."""

    widths: NDArray[np.int32]
    """Bytes of text that each token stands for [vocab_size]: a character of the alphabet is a byte."""
    missing: bytes
    """Bytes that no token stands for, ascending."""

    def __init__(self, vocabulary: Vocabulary, pre: PreTokenizer) -> None:
        """Check the vocabulary and build the merges. Raises TokenizerError naming what contradicts."""
        texts = _texts(vocabulary)
        ids = _ids(vocabulary, texts)
        self.widths = np.fromiter(map(len, texts), np.int32, len(texts))
        self.missing = bytes(byte for byte, character in enumerate(CHARACTER_OF) if character not in ids)
        self._engine = Engine(_model(vocabulary, ids, ignore_merges=pre.ignore_merges))
        self._engine.pre_tokenizer = pre_tokenizers.Sequence(_cutters(pre))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        encoded = self._engine.encode_batch_fast(list(texts), add_special_tokens=False)
        return [one.ids for one in encoded]


def _texts(vocabulary: Vocabulary) -> list[str]:
    try:
        return [token.decode() for token in vocabulary.tokens]
    except UnicodeDecodeError as error:
        token = vocabulary.tokens[:].index(error.object)
        raise vocabulary.error("tokens", f"token {token}, {error.object[:40]!r}, is not UTF-8") from None


def _ids(vocabulary: Vocabulary, texts: list[str]) -> dict[str, int]:
    """Return the id of each spelling; empty ones, which no text gives, are left out."""
    ids = {text: index for index, text in enumerate(texts)}
    if len(ids) < len(texts):
        first: dict[str, int] = {}
        for index, text in enumerate(texts):
            if text and first.setdefault(text, index) != index:
                what = f"{text[:40]!r} stands twice, as token {first[text]} and as {index}; each must be unique"
                raise vocabulary.error("tokens", what)
    ids.pop("", None)
    return ids


def _model(vocabulary: Vocabulary, ids: dict[str, int], *, ignore_merges: bool) -> Any:
    pairs = merge_pairs(vocabulary)
    try:
        return models.BPE(vocab=ids, merges=pairs, ignore_merges=ignore_merges)
    except Exception as error:  # the package raises Exception itself, and says less than is known here
        raise _absent(vocabulary, ids, pairs, str(error)) from None


def merge_pairs(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Return the merges, best first; of one that stands twice the first counts, as in llama.cpp."""
    lines = dict.fromkeys(vocabulary.merges or ())
    try:
        pairs = [tuple(line.decode().split(" ")) for line in lines]
    except UnicodeDecodeError as error:
        raise vocabulary.error("merges", f"{error.object[:40]!r} is not UTF-8") from None
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            what = f"{' '.join(pair)[:80]!r} is not a pair; two spellings with a space between them are expected"
            raise vocabulary.error("merges", what)
    return pairs  # type: ignore[return-value]  # each has just been seen to be a pair


def _absent(vocabulary: Vocabulary, ids: dict[str, int], pairs: list[tuple[str, str]], cause: str) -> TokenizerError:
    for index, (left, right) in enumerate(pairs):
        for spelling in (left, right, left + right):
            if spelling not in ids:
                what = (
                    f"merge {index}, {left!r} with {right!r}, needs {spelling!r}, which is no token; the lists differ"
                )
                return vocabulary.error("merges", f"{what}: convert the model again")
    return vocabulary.error("merges", f"{cause}: convert the model again")


def _cutters(pre: PreTokenizer) -> list[Any]:
    isolate = partial(pre_tokenizers.Split, behavior="isolated")
    to_alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return [*(isolate(Regex(pattern)) for pattern in pre.patterns), to_alphabet]
