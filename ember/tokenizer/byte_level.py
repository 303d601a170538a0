"""Byte-level BPE (`tokenizer.ggml.model = gpt2`): the merging, done by the `tokenizers` package from the file's merges.

This module imports that package; `Tokenizer` imports this module when the first text is encoded.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Engine

from ember.tokenizer.alphabet import CHARACTER_OF
from ember.tokenizer.encoder import Encoded
from ember.tokenizer.lists import check_merges, merge_pairs, texts_of, unique_ids
from ember.tokenizer.pretokenizers import PreTokenizer
from ember.tokenizer.vocabulary import Vocabulary


class ByteLevelBPE:
    """Encodes pieces of text in which no token is spelt out."""

    def __init__(self, vocabulary: Vocabulary, pre: PreTokenizer) -> None:
        """Check the vocabulary and build the merges. Raises TokenizerError naming what contradicts."""
        texts = texts_of(vocabulary)
        ids = unique_ids(vocabulary, texts)
        # A character of the alphabet is a byte.
        self._widths = np.fromiter(map(len, texts), np.int32, len(texts))
        self._missing = bytes(byte for byte, character in enumerate(CHARACTER_OF) if character not in ids)
        self._engine = Engine(_model(vocabulary, ids, ignore_merges=pre.ignore_merges))
        self._engine.pre_tokenizer = pre_tokenizers.Sequence(_cutters(pre))

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Return ids and widths of each text."""
        encoded = self._engine.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [np.array(one.ids, np.int32) for one in encoded]
        return [(ids, self._widths[ids]) for ids in rows]

    def encode_inside(self, text: str) -> Encoded:
        """See `Encoder.encode_inside`."""
        (encoded,) = self.encode([text])
        return encoded

    def lacking(self, text: str) -> tuple[int, int] | None:
        """Return the first character, and which byte of it, that no token stands for."""
        data = text.encode()
        if not self._missing or len(data.translate(None, self._missing)) == len(data):
            return None
        return next(
            (at, byte) for at, character in enumerate(text) for byte in character.encode() if byte in self._missing
        )


def _model(vocabulary: Vocabulary, ids: dict[str, int], *, ignore_merges: bool) -> Any:
    pairs = merge_pairs(vocabulary)
    try:
        return models.BPE(vocab=ids, merges=pairs, ignore_merges=ignore_merges)
    except Exception as error:  # the package raises Exception itself, and says less than is known here
        check_merges(vocabulary, ids, pairs)
        raise vocabulary.error("merges", f"{error}: convert the model again") from None


def _cutters(pre: PreTokenizer) -> list[Any]:
    isolate = partial(pre_tokenizers.Split, behavior="isolated")
    to_alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return [*(isolate(Regex(pattern)) for pattern in pre.patterns), to_alphabet]
