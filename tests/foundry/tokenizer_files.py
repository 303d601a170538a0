"""Vocabulary-only GGUF files, made by gguf's own writer, for tests of tokenizers and recordings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf

from tests.foundry.token_strings import dense_merges, dense_words
from tests.foundry.vocab import byte_characters

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
EXTRAS = (
    ("<unk>", UNKNOWN),
    ("<|begin|>", CONTROL),
    ("<|end|>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("<|end|>>", CONTROL),
    ("<tool>", USER_DEFINED),
    ("ab-b", USER_DEFINED),
    ("b-bc-", USER_DEFINED),
    ("<s>", NORMAL),
    ("<|unused1|>", UNUSED),
)
"""Tokens that no merge gives, the last of a tiny vocabulary."""
UNREACHABLE = ("xabc", "Ġabc", "Ġكتاب".replace("كتاب", "".join(byte_characters()[byte] for byte in "كتاب".encode())))
"""Words with no merges that lead to them: `ignore_merges` decides what becomes of them."""


@dataclass(frozen=True, slots=True)
class VocabularyFile:
    """What to write; `keys` are further `tokenizer.ggml.*` keys, None for one that is to be left out."""

    tokens: Sequence[str | bytes]
    merges: Sequence[str] | None
    types: Sequence[int] | None
    keys: tuple[tuple[str, Any], ...] = (("model", "gpt2"), ("pre", "gpt-2"))

    def but(self, **keys: Any) -> "VocabularyFile":
        """Return the same with other values of some keys."""
        return replace(self, keys=tuple((dict(self.keys) | keys).items()))

    def id_of(self, token: str) -> int:
        """Return the id of a token."""
        return list(self.tokens).index(token)

    def write(self, path: Path) -> Path:
        """Write the file, with the keys that llama.cpp wants of a llama model, and return its path."""
        writer = gguf.GGUFWriter(path, "llama")
        for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"):
            writer.add_uint32(f"llama.{key}", 16)
        writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        writer.add_token_list([one.encode() if isinstance(one, str) else one for one in self.tokens])
        if self.types is not None:
            writer.add_token_types(list(self.types))
        if self.merges is not None:
            writer.add_token_merges(list(self.merges))
        for key, value in self.keys:
            if value is not None:
                writer.add_key_value(f"tokenizer.ggml.{key}", value, _kind(value))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path


def _kind(value: Any) -> gguf.GGUFValueType:
    if isinstance(value, bool):
        return gguf.GGUFValueType.BOOL
    if isinstance(value, int):
        return gguf.GGUFValueType.UINT32 if value >= 0 else gguf.GGUFValueType.INT32
    return gguf.GGUFValueType.get_type(value)


def byte_level(
    merges: Sequence[str], extras: Sequence[tuple[str, int]] = EXTRAS, words: Sequence[str] = UNREACHABLE
) -> VocabularyFile:
    """Describe a vocabulary: 256 bytes, what the merges make, words that no merge makes, and special tokens."""
    tokens = list(dict.fromkeys([*byte_characters().values(), *(merge.replace(" ", "") for merge in merges), *words]))
    types = [NORMAL] * len(tokens) + [kind for _, kind in extras]
    return VocabularyFile([*tokens, *(text for text, _ in extras)], merges, types)


def tiny(merges: Sequence[str], pre: str) -> VocabularyFile:
    """Describe the vocabulary that the recordings of `tests/foundry/record_tokens.py` are of."""
    file = byte_level(merges)
    return file.but(pre=pre, bos_token_id=file.id_of("<|begin|>"), eos_token_id=file.id_of("<|end|>"))


METASPACE_EXTRAS = (
    ("<tool>", USER_DEFINED),
    ("  ", USER_DEFINED),
    ("\n\n", USER_DEFINED),
    ("<|im_end|>", CONTROL),
    ("<|unused1|>", UNUSED),
)
"""Tokens that no merge gives, in vocabularies whose space is `▁`."""
ORPHANS = ("ﷺﷲ", "ꙮ▁", "ⅫⅫⅫ")
"""Tokens of characters that are no tokens themselves: merging may reach the first two, not the third."""
SPECIALS = (("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))
BYTES = tuple((f"<0x{byte:02X}>", BYTE) for byte in range(256))


def sentencepiece(
    entries: Sequence[tuple[str, float]], extras: Sequence[tuple[str, int]] = (), *, with_bytes: bool = True
) -> VocabularyFile:
    """Describe a vocabulary of model `llama`: specials, bytes, tokens with their scores, and extras of score 0."""
    before = [*SPECIALS, *(BYTES if with_bytes else ())]
    listed = [*before, *((text, NORMAL) for text, _ in entries), *extras]
    scores = [0.0] * len(before) + [float(score) for _, score in entries] + [0.0] * len(extras)
    file = VocabularyFile([text for text, _ in listed], None, [kind for _, kind in listed])
    return file.but(model="llama", pre="default", scores=scores, bos_token_id=1, eos_token_id=2, unknown_token_id=0)


def gemma4(merges: Sequence[str], extras: Sequence[tuple[str, int]] = ()) -> VocabularyFile:
    """Describe a vocabulary of model `gemma4`: specials, bytes, all that the merges are of or make, and extras."""
    parts = [part for merge in merges for part in (*merge.split(" "), merge.replace(" ", ""))]
    listed = [*SPECIALS, *BYTES, *((text, NORMAL) for text in dict.fromkeys(parts)), *extras]
    file = VocabularyFile([text for text, _ in listed], merges, [kind for _, kind in listed])
    return file.but(model="gemma4", pre=None, bos_token_id=1, eos_token_id=2, unknown_token_id=0)


def tiny_sentencepiece(merges: Sequence[str], *, prefix: bool) -> VocabularyFile:
    """Describe the recorded vocabulary of model `llama`: every three merges share a score, so that place decides.

    `prefix` is what it says of a space before each text.
    """
    made = [merge.replace(" ", "") for merge in merges]
    characters = dict.fromkeys(part for merge in merges for part in merge.split(" ") if len(part) == 1)
    scored = [(text, -float(rank // 3)) for rank, text in enumerate(dict.fromkeys(made))]
    scored += [(text, -1000.0 - rank) for rank, text in enumerate(characters)]
    scored += [(text, -2000.0) for text in ORPHANS]
    return sentencepiece(scored, METASPACE_EXTRAS).but(add_space_prefix=prefix)


def tiny_gemma4(merges: Sequence[str]) -> VocabularyFile:
    """Describe the recorded vocabulary of model `gemma4`; five newlines are a token that no merge makes."""
    return gemma4(["\n \n", "\n\n \n", *merges], [*METASPACE_EXTRAS[:2], ("\n" * 5, NORMAL), ("<|im_end|>", CONTROL)])


def dense(pre: str) -> VocabularyFile:
    """Describe the byte-level vocabulary in which nearly every cut shows, under a `pre`."""
    file = byte_level(dense_merges(), extras=(("<|begin|>", CONTROL),), words=dense_words())
    return file.but(pre=pre, bos_token_id=file.id_of("<|begin|>"))
