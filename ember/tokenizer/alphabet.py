"""GPT-2's alphabet: a printable character for each of the 256 bytes, in which byte-level vocabularies are written.

Bytes that print as themselves in Latin-1 keep their character; the others take U+0100 and up in order: a space is
U+0120.
"""

from typing import Final

from ember.tokenizer.vocabulary import TokenType, Vocabulary


def _characters() -> tuple[str, ...]:
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    moved = iter(range(256, 512))
    return tuple(chr(byte) if byte in printable else chr(next(moved)) for byte in range(256))


CHARACTER_OF: Final = _characters()
"""The character of each byte."""
BYTE_OF: Final = {character: byte for byte, character in enumerate(CHARACTER_OF)}


def spelled_bytes(spelling: bytes) -> bytes:
    """Return the bytes that a vocabulary entry stands for; one with characters outside the alphabet is itself."""
    try:
        return bytes(BYTE_OF[character] for character in spelling.decode())
    except (KeyError, UnicodeDecodeError):
        return spelling


def token_bytes(vocabulary: Vocabulary, token: int) -> bytes:
    """Return the bytes that a token stands for: all but ordinary ones stand for their spelling."""
    spelling = vocabulary.tokens[token]
    return spelled_bytes(spelling) if vocabulary.types[token] == TokenType.NORMAL else spelling
