"""Prompts of a comparison: a file's lines, or texts that reach what mistakes hide behind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ember.errors import InputError
from ember.model import Model

TEXTS: Final = (
    "the",
    "عَلِمَ الوَلَدُ دَرْسَ",
    "كتب الطالب رسالة إلى أستاذه، وسأله عن جذور الأفعال وأوزانها في العربية. "
    "The root k-t-b gives kataba, kātib, maktūb and maktaba; each pattern adds a meaning of its own. "
    "فأجابه الأستاذ: إن الجذر يحمل المعنى العام، والوزن يحدد الصيغة، ومنهما معاً تتكون الكلمة. "
    * 3
    + "The word kātib is",
)
"""One word, vocalised Arabic, and a text of some hundred tokens in two scripts."""
LARGEST: Final = 16 * 1024 * 1024


def read_texts(path: Path) -> list[str]:
    """Read prompts, one a line (empty lines are passed over). Raises InputError."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise InputError(f"{path}: {size:,} bytes of prompts; at most {LARGEST:,} are read")
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; write one prompt a line in UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a file with one prompt a line") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError(f"{path}: holds no prompt; expected one a line")
    return texts


def to_ids(model: Model, texts: Sequence[str], steps: int) -> list[list[int]]:
    """Encode prompts. Raises InputError for one that leaves no room for `steps` more tokens."""
    ids = [encoded.tolist() for encoded in model.tokenizer.encode_ids(list(texts))]
    for index, prompt in enumerate(ids):
        if not prompt or len(prompt) + steps > model.context_length:
            raise InputError(
                f"prompt {index} has {len(prompt)} tokens; from 1 to {model.context_length - steps} are expected, so "
                f"that {steps} can follow in the model's context of {model.context_length}"
            )
    return ids


def default_ids(model: Model, steps: int) -> list[list[int]]:
    """Encode TEXTS, without those too long for the model. Raises InputError if none is left."""
    ids = [encoded.tolist() for encoded in model.tokenizer.encode_ids(list(TEXTS))]
    fitting = [prompt for prompt in ids if prompt and len(prompt) + steps <= model.context_length]
    if not fitting:
        raise InputError(
            f"the model's context of {model.context_length} holds none of the standard prompts; "
            "give shorter ones with --prompts"
        )
    return fitting
