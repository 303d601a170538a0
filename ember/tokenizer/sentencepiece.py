"""SentencePiece-style BPE (`tokenizer.ggml.model = llama`).

Two neighbours join if their text is a token, the token of the highest score first. The file has no merges, and none are
looked for: the scores say it all.
"""

from typing import Final

from ember.tokenizer.lists import texts_of, unique_ids
from ember.tokenizer.merging import Merger, joints_of
from ember.tokenizer.metaspace import SPACE, MetaspaceBPE, byte_tokens
from ember.tokenizer.vocabulary import TokenType, Vocabulary

_NEVER_MERGED: Final = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.BYTE)
"""Tokens that no text gives by merging, as in SentencePiece: what a text spells is never a control token by chance."""


def sentencepiece(vocabulary: Vocabulary, *, prefix: bool) -> MetaspaceBPE:
    """Build the encoder; `prefix` puts a space before each text. Raises TokenizerError naming what contradicts."""
    every = unique_ids(vocabulary, texts_of(vocabulary))
    bytes_of = byte_tokens(every)
    never = set(vocabulary.of_type(*_NEVER_MERGED))
    ids = {text: token for text, token in every.items() if token not in never}
    if prefix and SPACE not in ids and any(byte not in bytes_of for byte in SPACE.encode()):
        what = f"a space is put before each text, but neither {SPACE!r} nor its bytes are tokens"
        raise vocabulary.error("add_space_prefix", f"{what}: convert the model again")
    costs = [-score for score in vocabulary.scores.tolist()] if vocabulary.scores is not None else []
    merger = Merger({text: costs[token] for text, token in ids.items()}, "", joints_of(ids))
    return MetaspaceBPE(merger, ids, bytes_of, prefix=prefix, whole_newlines=False)
