"""The tokenizer of one model: encoding, decoding, and what a run must record of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ember.errors import InputError, TokenizerError
from ember.tokenizer.encoder import Algorithm, Encoded, Encoder
from ember.tokenizer.encoding import Encoding, utf8
from ember.tokenizer.oddities import oddities
from ember.tokenizer.spellings import Piece, Spellings
from ember.tokenizer.unicode_classes import UNICODE_VERSION
from ember.tokenizer.vocabulary import SPELT_TYPES, Bos, BosRule, TokenType, Vocabulary


class Tokenizer:
    """Made by `load_tokenizer`. Cheap facts and decoding cost nothing; the first encoding builds the merges."""

    def __init__(self, vocabulary: Vocabulary, algorithm: Algorithm, bos: Bos) -> None:
        """Use `load_tokenizer`."""
        self._vocabulary = vocabulary
        self._algorithm = algorithm
        self._bos = bos

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self._vocabulary.tokens)

    @property
    def bos_id(self) -> int | None:
        """Token that begins a text; None if the file names none."""
        return self._bos.token

    @property
    def eos_id(self) -> int | None:
        """Token that ends a text; None if the file names none."""
        return self._vocabulary.special_ids.get("eos")

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end a text, a turn or a message, as the file names them; none is guessed from its spelling."""
        roles = (self._vocabulary.special_ids.get(role) for role in ("eos", "eot", "eom"))
        return tuple(dict.fromkeys(token for token in roles if token is not None))

    @property
    def add_bos(self) -> bool:
        """Whether `encode` puts a BOS before the text."""
        return self._bos.add

    @property
    def add_bos_from(self) -> BosRule:
        """Who says so: the `file`, the `default` of its pre-tokenizer, or an `override` by `with_add_bos`."""
        return self._bos.rule

    def with_add_bos(self, add: bool) -> "Tokenizer":  # noqa: FBT001  # the flag is the name of what is set
        """Return this tokenizer with another rule for BOS; raises InputError if there is no BOS to add."""
        if add and self._bos.token is None:
            raise InputError(f"{self._vocabulary.origin}: a BOS is asked for, but the file names none; leave it out")
        other = Tokenizer(self._vocabulary, self._algorithm, replace(self._bos, add=add, rule="override"))
        if "_encoder" in self.__dict__:
            other.__dict__["_encoder"] = self._encoder
        return other

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> Encoding:
        """Encode a text. `add_special` adds a BOS where `add_bos` says so, never a second one and never an EOS.

        The text is literal; with `parse_special`, control tokens spelt out in it become those tokens. Raises InputError
        for text that is no valid Unicode or holds a byte that no token stands for.
        """
        ((ids, widths),) = self._encode([text], add_special=add_special, parse_special=parse_special)
        ends = [0, *accumulate(widths.tolist())]
        return Encoding(ids.tolist(), list(pairwise(ends)))

    def encode_ids(
        self, texts: Sequence[str], *, add_special: bool = True, parse_special: bool = False
    ) -> list[NDArray[np.int32]]:
        """Encode many texts at once as `encode` does, giving ids only: one int32 [tokens] for each text."""
        return [ids for ids, _ in self._encode(texts, add_special=add_special, parse_special=parse_special)]

    def encode_fragment(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Return the ids of a stretch from inside a text: no BOS, and no space before it (`add_space_prefix`).

        Errors as of `encode`.
        """
        self._check_texts([text])
        pieces = (self._parsed if parse_special else self._literal).split(text)
        begins = [self._encoder.encode_inside(piece) for piece in pieces[:1] if isinstance(piece, str)]
        others = (piece for piece in pieces[len(begins) :] if isinstance(piece, str))
        ids, _ = self._join(pieces, iter([*begins, *self._encoder.encode(list(others))]))
        return [int(token) for token in ids]

    def decode(self, ids: ArrayLike, *, whole: bool = False) -> str:
        """Return the text of token ids; bytes that are no UTF-8, as of half a letter, become U+FFFD.

        `whole` says that the ids are of a whole text, as `encode` gives them, and not of a part, as a continuation is:
        spaces that the tokenizer put there itself (`add_space_prefix`) are then left out, and the text comes back.
        """
        if not whole or not self._algorithm.space_prefix:
            return self.decode_bytes(ids).decode(errors="replace")
        return b"".join(self._without_prefixes(self.check_ids(ids).tolist())).decode(errors="replace")

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Return exactly the bytes that token ids stand for; control and unused tokens stand for their spelling."""
        return b"".join(map(self._bytes_of, self.check_ids(ids).tolist()))

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that one token stands for."""
        return self.decode_bytes([token])

    def spelling(self, token: int) -> str:
        """Return one token as the file spells it; bytes that are no UTF-8 are escaped."""
        (checked,) = self.check_ids([token])
        return self._vocabulary.spelling(int(checked))

    def is_special(self, token: int) -> bool:
        """Whether the file types a token as CONTROL or UNKNOWN; how it is spelt does not matter."""
        (checked,) = self.check_ids([token])
        return bool(self._vocabulary.types[checked] in (TokenType.CONTROL, TokenType.UNKNOWN))

    def check_ids(self, ids: ArrayLike) -> NDArray[np.int32]:
        """Return token ids as int32 [tokens]; raises TokenizerError for one outside the vocabulary.

        Raises InputError for what is not one row of integers.
        """
        found = np.asarray(ids)
        if found.size == 0 and found.ndim == 1:
            return np.empty(0, np.int32)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise InputError(f"token ids: {found.dtype} of shape {list(found.shape)}; one row of integers is expected")
        outside = np.flatnonzero((found < 0) | (found >= self.vocab_size))
        if outside.size:
            first = outside[0]
            raise TokenizerError(f"token id {found[first]} at position {first}; ids are 0 to {self.vocab_size - 1}")
        return found.astype(np.int32)

    def control_spellings(self, text: str) -> list[str]:
        """Return the control tokens that are spelt out in a text, which `encode` takes literally unless told."""
        return self._control.occurring(text)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about this tokenizer, one line each; nothing that makes it unusable."""
        return tuple(oddities(self._vocabulary, self._bos, self._algorithm))

    def record(self) -> dict[str, Any]:
        """Return what decides token ids, for a run's manifest."""
        return {
            "model": self._vocabulary.model,
            "pre": self._algorithm.pre,
            "pre_tokenizer": self._algorithm.rule,
            "space_prefix": self._algorithm.space_prefix,
            "unicode": UNICODE_VERSION,
            "vocab_size": self.vocab_size,
            "add_bos": self.add_bos,
            "add_bos_from": self.add_bos_from,
            "special_ids": dict(self._vocabulary.special_ids),
            "sha256": self._sha256,
            "tokenizers_version": version("tokenizers"),
            "warnings": list(self.warnings),
        }

    def __repr__(self) -> str:
        what = f"model={self._vocabulary.model!r}, pre={self._algorithm.pre!r}"
        return f"Tokenizer({self._vocabulary.origin!r}, {what}, {self.vocab_size} tokens)"

    # -- encoding

    @cached_property
    def _encoder(self) -> Encoder:
        return self._algorithm.encoder()

    @cached_property
    def _literal(self) -> Spellings:
        return self._spellings(TokenType.USER_DEFINED)

    @cached_property
    def _control(self) -> Spellings:
        return self._spellings(TokenType.CONTROL, TokenType.UNKNOWN)

    @cached_property
    def _parsed(self) -> Spellings:
        return Spellings.of([*self._literal.entries, *self._control.entries])

    @cached_property
    def _sha256(self) -> str:
        return self._vocabulary.sha256()

    def _spellings(self, *types: TokenType) -> Spellings:
        return Spellings.of((self._vocabulary.spelling(token), token) for token in self._vocabulary.of_type(*types))

    def _encode(self, texts: Sequence[str], *, add_special: bool, parse_special: bool) -> Iterator[Encoded]:
        """Yield for each text its ids and the bytes of it that each stands for."""
        self._check_texts(texts)
        spellings = self._parsed if parse_special else self._literal
        split = [spellings.split(text) for text in texts]
        encoded = iter(self._encoder.encode([piece for pieces in split for piece in pieces if isinstance(piece, str)]))
        for pieces in split:
            ids, widths = self._join(pieces, encoded)
            if add_special and self.add_bos and (not ids.size or ids[0] != self.bos_id):
                ids, widths = np.append(np.int32(self.bos_id or 0), ids), np.append(np.int32(0), widths)
            yield ids, widths

    def _join(self, pieces: list[Piece], encoded: Iterator[Encoded]) -> Encoded:
        parts = [next(encoded) if isinstance(piece, str) else self._spelt(piece) for piece in pieces]
        none = np.empty(0, np.int32)
        return np.concatenate([none, *(ids for ids, _ in parts)]), np.concatenate(
            [none, *(widths for _, widths in parts)]
        )

    def _spelt(self, token: int) -> Encoded:
        return np.array([token], np.int32), np.array([len(self._vocabulary.tokens[token])], np.int32)

    def _check_texts(self, texts: Iterable[str]) -> None:
        for index, text in enumerate(texts):
            what = f"text {index}" if index else "text"
            utf8(text, what)
            lacking = self._encoder.lacking(text)
            if lacking:
                at, byte = lacking
                raise InputError(
                    f"{what}: U+{ord(text[at]):04X} at character {at} cannot be encoded: no token of "
                    f"{self._vocabulary.origin} stands for its byte 0x{byte:02X} (llama.cpp would drop it silently or "
                    "stop); take that character out"
                )

    # -- decoding

    @cached_property
    def _known_bytes(self) -> dict[int, bytes]:
        return {}

    def _bytes_of(self, token: int) -> bytes:
        known = self._known_bytes.get(token)
        if known is None:
            known = self._known_bytes[token] = self._algorithm.token_bytes(self._vocabulary, token)
        return known

    def _without_prefixes(self, ids: list[int]) -> Iterator[bytes]:
        """Yield the bytes of each token; the space that encoding put before a stretch of text is left out."""
        begins = True
        for token in ids:
            spelt = token in self._spelt_tokens
            yield self._bytes_of(token).removeprefix(b" ") if begins and not spelt else self._bytes_of(token)
            begins = spelt

    @cached_property
    def _spelt_tokens(self) -> frozenset[int]:
        return frozenset(self._vocabulary.of_type(*SPELT_TYPES))
