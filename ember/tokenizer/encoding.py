"""What encoding a text gives, and the checks that every text passes first."""

from dataclasses import dataclass

from ember.errors import InputError


@dataclass(frozen=True, slots=True)
class Encoding:
    """Token ids of one text, and the bytes of its UTF-8 that each stands for, half-open.

    The offsets tile the text: each begins where the one before it ended. A token that stands for no text, as an added
    BOS, has an empty one, (0, 0).
    """

    ids: list[int]
    byte_offsets: list[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.ids)


def utf8(text: str, what: str = "text") -> bytes:
    """Return the UTF-8 of a text; raises InputError for a lone surrogate, which no UTF-8 can hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what}: a lone surrogate, U+{ord(text[error.start]):04X}, at character {error.start}; text must be valid "
            "Unicode; it may have been cut inside a pair, or read with a wrong encoding"
        ) from None
