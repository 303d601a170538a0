"""What every algorithm of tokenization offers to `Tokenizer`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ember.tokenizer.vocabulary import Vocabulary

Encoded = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Token ids of a text, and the bytes of its UTF-8 that each stands for; int32 [tokens] both."""


class Encoder(Protocol):
    """Encodes stretches of text in which no token is spelt out."""

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Return ids and widths; the widths of each text add up to the bytes of its UTF-8."""
        ...

    def encode_inside(self, text: str) -> Encoded:
        """As `encode`, for a stretch from inside a text: no space is put before it."""
        ...

    def lacking(self, text: str) -> tuple[int, int] | None:
        """Return the first character, and which byte of it, that no token stands for; None if all have one."""
        ...


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What `tokenizer.ggml.model` names, set up for one file. Building the encoder is put off until a text comes."""

    pre: str | None
    """What the file calls `pre`."""
    rule: str
    """How text is cut into words: the name of the pre-tokenizer, `newlines` or `none`."""
    bos_customary: bool
    """Whether a BOS is added where the file does not say."""
    encoder: Callable[[], Encoder]
    token_bytes: Callable[[Vocabulary, int], bytes]
    """The bytes that a token stands for."""
    bos_always: bool = False
    """Whether it is added even where the file says otherwise."""
    space_prefix: bool = False
    """Whether a space is put before the text, and after every token that is spelt out in it."""
    caution: str = ""
    """What a run's record must say of it."""
