"""A Hugging Face `tokenizer.json` of a made vocabulary, by the `tokenizers` package itself."""

from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.foundry.tokenizer_files import CONTROL, USER_DEFINED, VocabularyFile


def write_byte_level(
    file: VocabularyFile,
    path: Path,
    *,
    renamed: Mapping[int, str] | None = None,
    bos: str | None = None,
    nfc: bool = False,
) -> Path:
    """Write the tokenizer of a byte-level vocabulary; `renamed` spells some tokens otherwise, `bos` is put first."""
    texts = dict(enumerate(str(token) for token in file.tokens)) | dict(renamed or {})
    pairs = [(left, right) for left, right in (str(merge).split(" ") for merge in file.merges or ())]
    engine = Tokenizer(models.BPE(vocab={text: token for token, text in texts.items()}, merges=pairs))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    types = file.types or []
    engine.add_special_tokens([texts[at] for at, kind in enumerate(types) if kind == CONTROL])
    engine.add_tokens(
        [AddedToken(texts[at], normalized=False) for at, kind in enumerate(types) if kind == USER_DEFINED]
    )
    if bos:
        engine.post_processor = processors.TemplateProcessing(f"{bos} $A", None, [(bos, file.id_of(bos))])
    if nfc:
        engine.normalizer = normalizers.NFC()
    engine.save(str(path))
    return path
