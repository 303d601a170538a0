"""From a GGUF to a Tokenizer. `tokenizer.ggml.model` alone says which algorithm it is, never which lists are there."""

from os import PathLike
from pathlib import Path
from typing import Final

from ember.assets_path import resolve_model
from ember.errors import UnsupportedError
from ember.gguf import GGUFFile, open_gguf
from ember.tokenizer.pretokenizers import PreTokenizer, pre_tokenizer
from ember.tokenizer.tokenizer import Tokenizer
from ember.tokenizer.vocabulary import Bos, Vocabulary, read_vocabulary

SUPPORTED_MODELS: Final = ("gpt2",)


def load_tokenizer(source: str | PathLike[str] | GGUFFile) -> Tokenizer:
    """Return the tokenizer of a GGUF: a path, `builtin:` name or open file; one of nothing but a vocabulary will do.

    Token strings are read and merges built when first needed. Raises GGUFError for a file that is no GGUF,
    UnsupportedError for a kind of tokenizer that Ember does not have, TokenizerError for one that contradicts itself.
    """
    file = source if isinstance(source, GGUFFile) else open_gguf(_path(source))
    vocabulary = read_vocabulary(file)
    if vocabulary.model not in SUPPORTED_MODELS:
        raise UnsupportedError(
            f"{vocabulary.origin}: tokenizer.ggml.model: {vocabulary.model!r} is not supported; supported: "
            f"{', '.join(SUPPORTED_MODELS)} (byte-level BPE)"
        )
    pre_name = file.metadata.get("tokenizer.ggml.pre")
    pre = pre_tokenizer(pre_name, vocabulary.origin)
    if not vocabulary.merges:
        raise vocabulary.error(
            "merges", "absent or empty; model gpt2 is BPE, which needs them: convert the model again"
        )
    return Tokenizer(vocabulary, str(pre_name), pre, _bos(vocabulary, pre))


def _path(source: str | PathLike[str]) -> Path:
    return resolve_model(source if isinstance(source, str) else Path(source))


def _bos(vocabulary: Vocabulary, pre: PreTokenizer) -> Bos:
    token = vocabulary.special_ids.get("bos")
    if vocabulary.add_bos is None:
        return Bos(pre.add_bos and token is not None, "default", token)
    return Bos(vocabulary.add_bos and token is not None, "file", token)
