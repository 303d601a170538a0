"""From a GGUF to a Tokenizer. `tokenizer.ggml.model` alone says which algorithm it is, never which lists are there."""

from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Final

from ember.assets_path import resolve_model
from ember.errors import UnsupportedError
from ember.gguf import GGUFFile, open_gguf
from ember.tokenizer import alphabet, metaspace
from ember.tokenizer.encoder import Algorithm, Encoder
from ember.tokenizer.pretokenizers import PreTokenizer, pre_tokenizer
from ember.tokenizer.tokenizer import Tokenizer
from ember.tokenizer.vocabulary import Bos, Vocabulary, read_vocabulary


def load_tokenizer(source: str | PathLike[str] | GGUFFile) -> Tokenizer:
    """Return the tokenizer of a GGUF: a path, `builtin:` name or open file; one of nothing but a vocabulary will do.

    Token strings are read and merges built when first needed. Raises GGUFError for a file that is no GGUF,
    UnsupportedError for a kind of tokenizer that Ember does not have, TokenizerError for one that contradicts itself.
    """
    file = source if isinstance(source, GGUFFile) else open_gguf(_path(source))
    vocabulary = read_vocabulary(file)
    if vocabulary.model not in ALGORITHMS:
        supported = ", ".join(f"{name} ({what})" for name, (what, _) in ALGORITHMS.items())
        raise UnsupportedError(
            f"{vocabulary.origin}: tokenizer.ggml.model: {vocabulary.model!r} is not supported; supported: {supported}"
        )
    _, read = ALGORITHMS[vocabulary.model]
    algorithm = read(vocabulary, file.metadata.get("tokenizer.ggml.pre"))
    return Tokenizer(vocabulary, algorithm, _bos(vocabulary, algorithm))


def _path(source: str | PathLike[str]) -> Path:
    return resolve_model(source if isinstance(source, str) else Path(source))


def _bos(vocabulary: Vocabulary, algorithm: Algorithm) -> Bos:
    token = vocabulary.special_ids.get("bos")
    if vocabulary.add_bos or (vocabulary.add_bos is False and not algorithm.bos_always):
        return Bos(vocabulary.add_bos and token is not None, "file", token)
    return Bos(algorithm.bos_customary and token is not None, "default", token)


def _byte_level(vocabulary: Vocabulary, pre_name: object) -> Algorithm:
    pre = pre_tokenizer(pre_name, vocabulary.origin)
    _need_merges(vocabulary)
    return Algorithm(
        pre=str(pre_name),
        rule=pre.name,
        bos_customary=pre.add_bos,
        encoder=partial(_byte_level_encoder, vocabulary, pre),
        token_bytes=alphabet.token_bytes,
        caution=f"tokenizer.ggml.pre is {pre.name}: {pre.caution}" if pre.caution else "",
    )


def _byte_level_encoder(vocabulary: Vocabulary, pre: PreTokenizer) -> Encoder:
    from ember.tokenizer.byte_level import ByteLevelBPE

    return ByteLevelBPE(vocabulary, pre)


def _sentencepiece(vocabulary: Vocabulary, pre_name: object) -> Algorithm:
    prefix = vocabulary.add_space_prefix is not False
    return Algorithm(
        pre=None if pre_name is None else str(pre_name),
        rule="none",
        bos_customary=True,
        space_prefix=prefix,
        encoder=partial(_sentencepiece_encoder, vocabulary, prefix=prefix),
        token_bytes=metaspace.token_bytes,
    )


def _sentencepiece_encoder(vocabulary: Vocabulary, *, prefix: bool) -> Encoder:
    from ember.tokenizer.sentencepiece import sentencepiece

    return sentencepiece(vocabulary, prefix=prefix)


def _gemma4(vocabulary: Vocabulary, pre_name: object) -> Algorithm:
    _need_merges(vocabulary)
    return Algorithm(
        pre=None if pre_name is None else str(pre_name),
        rule="newlines",
        bos_customary=True,
        bos_always=True,
        encoder=partial(_gemma4_encoder, vocabulary),
        token_bytes=metaspace.token_bytes,
    )


def _gemma4_encoder(vocabulary: Vocabulary) -> Encoder:
    from ember.tokenizer.gemma4 import gemma4

    return gemma4(vocabulary)


def _need_merges(vocabulary: Vocabulary) -> None:
    if not vocabulary.merges:
        what = f"absent or empty; model {vocabulary.model} is BPE, which needs them"
        raise vocabulary.error("merges", f"{what}: convert the model again")


ALGORITHMS: Final[dict[str, tuple[str, Callable[[Vocabulary, object], Algorithm]]]] = {
    "gpt2": ("byte-level BPE", _byte_level),
    "llama": ("SentencePiece's BPE", _sentencepiece),
    "gemma4": ("Gemma 4's BPE", _gemma4),
}
"""What each `tokenizer.ggml.model` is, and how it is set up."""
