"""The `tokenizer.ggml.*` part of a GGUF, checked as far as that is cheap; strings stay in the file until needed."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ember.errors import TokenizerError
from ember.gguf import GGUFFile, StringArray

PREFIX: Final = "tokenizer.ggml."
SCORED_MODEL: Final = "llama"
"""The model whose ids come from scores; others carry scores that mean nothing."""
SPECIAL_ROLES: Final = ("bos", "eos", "eot", "eom", "unknown", "padding")
"""Roles whose token a file may name, in `tokenizer.ggml.<role>_token_id`."""


class TokenType(IntEnum):
    """What `tokenizer.ggml.token_type` says of a token; the numbers are the file format's."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPELT_TYPES: Final = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
"""Types whose tokens are found by their spelling, before a text is encoded."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens of one file and what it says about them."""

    origin: str
    """The file, for messages."""
    model: str
    """`tokenizer.ggml.model`: the algorithm. Nothing else decides it."""
    tokens: StringArray
    types: NDArray[np.int32]
    """TokenType of each token [vocab_size]."""
    merges: StringArray | None
    scores: NDArray[np.float32] | None
    """Score of each token [vocab_size], which decides ids of model `llama` alone; None for any other."""
    add_space_prefix: bool | None
    """What the file says; None if it is silent."""
    special_ids: Mapping[str, int]
    """Token of each role that the file names and that exists."""
    add_bos: bool | None
    """What the file says; None if it is silent."""
    warnings: tuple[str, ...]

    def error(self, field: str, what: str) -> TokenizerError:
        """Return the error that says what is wrong with a field of the file."""
        return TokenizerError(f"{self.origin}: {PREFIX}{field}: {what}")

    def spelling(self, token: int) -> str:
        """Return a token as the file spells it; bytes that are no UTF-8 are escaped."""
        return self.tokens[token].decode(errors="backslashreplace")

    def of_type(self, *types: TokenType) -> list[int]:
        """Return the ids of all tokens of these types, ascending."""
        ids: list[int] = np.flatnonzero(np.isin(self.types, types)).tolist()
        return ids

    def sha256(self) -> str:
        """Return a hash of tokens, merges, types and scores, the same whatever file holds them."""
        digest = hashlib.sha256()
        for strings in (self.tokens, self.merges or ()):
            entries = list(strings)
            digest.update(np.array([len(entries), *map(len, entries)], "<u8").tobytes())
            digest.update(b"".join(entries))
        digest.update(self.types.astype("<i4").tobytes())
        if self.scores is not None:
            digest.update(self.scores.astype("<f4").tobytes())
        return digest.hexdigest()


def read_vocabulary(file: GGUFFile) -> Vocabulary:
    """Read a file's vocabulary. Raises TokenizerError for one that is absent or contradicts itself."""
    return _Reader(file).read()


class _Reader:
    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self.warnings: list[str] = []

    def read(self) -> Vocabulary:
        model = self._get("model", "STRING")
        if model is None:
            raise self._error("model", "absent: the file has no tokenizer; take one that has, or give token ids")
        tokens = self._get("tokens", "ARRAY[STRING]")
        if not tokens:
            raise self._error("tokens", "absent or empty; a vocabulary needs tokens: convert the model again")
        return Vocabulary(
            origin=str(self.file.path),
            model=model,
            tokens=tokens,
            types=self._types(len(tokens)),
            merges=self._get("merges", "ARRAY[STRING]"),
            scores=self._scores(len(tokens)) if model == SCORED_MODEL else None,
            add_space_prefix=self._get("add_space_prefix", "BOOL"),
            special_ids=self._special_ids(len(tokens)),
            add_bos=self._add_bos(),
            warnings=tuple(self.warnings),
        )

    def _error(self, field: str, what: str) -> TokenizerError:
        return TokenizerError(f"{self.file.path}: {PREFIX}{field}: {what}")

    def _get(self, field: str, type_name: str) -> Any:
        key = PREFIX + field
        if key not in self.file.metadata:
            return None
        found = self.file.metadata_type(key)
        if found != type_name:
            raise self._error(field, f"is stored as {found}; {type_name} is expected: convert the model again")
        return self.file.metadata[key]

    def _types(self, count: int) -> NDArray[np.int32]:
        types: NDArray[np.int32] | None = self._get("token_type", "ARRAY[INT32]")
        if types is None:
            self.warnings.append(f"{PREFIX}token_type is absent: every token is taken as an ordinary one")
            return np.full(count, TokenType.NORMAL, np.int32)
        if len(types) != count:
            raise self._error("token_type", f"{len(types)} entries for {count} tokens; one for each is expected")
        unknown = np.flatnonzero((types < min(TokenType)) | (types > max(TokenType)))
        if unknown.size:
            raise self._error("token_type", f"token {unknown[0]} has type {types[unknown[0]]}; 0 to 6 are known")
        return types

    def _scores(self, count: int) -> NDArray[np.float32]:
        scores: NDArray[np.float32] | None = self._get("scores", "ARRAY[FLOAT32]")
        if scores is None:
            what = f"absent; model {SCORED_MODEL} joins what gives the token of the highest score"
            raise self._error("scores", f"{what}, so it needs them: convert the model again")
        if len(scores) != count:
            raise self._error("scores", f"{len(scores)} entries for {count} tokens; one for each is expected")
        unordered = np.flatnonzero(np.isnan(scores))
        if unordered.size:
            raise self._error("scores", f"token {unordered[0]} has the score NaN; a number is expected")
        return scores

    def _special_ids(self, count: int) -> dict[str, int]:
        ids = {}
        for role in SPECIAL_ROLES:
            field = f"{role}_token_id"
            value = self.file.metadata.get(PREFIX + field)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                found = self.file.metadata_type(PREFIX + field)
                raise self._error(field, f"is stored as {found}; an integer is expected: convert the model again")
            if 0 <= value < count:
                ids[role] = value
            else:
                self.warnings.append(f"{PREFIX}{field} is {value}, outside the vocabulary of {count}: taken as none")
        return ids

    def _add_bos(self) -> bool | None:
        if self._get("add_eos_token", "BOOL"):
            self.warnings.append(f"{PREFIX}add_eos_token is true: Ember appends no EOS to a prompt")
        add: bool | None = self._get("add_bos_token", "BOOL")
        if add and f"{PREFIX}bos_token_id" not in self.file.metadata:
            raise self._error("add_bos_token", "is true, but tokenizer.ggml.bos_token_id, which it needs, is absent")
        return add


BosRule = Literal["file", "default", "override"]
"""Who decided whether a BOS is added: the file, the pre-tokenizer's default, or the caller."""


@dataclass(frozen=True, slots=True)
class Bos:
    """Whether a BOS is put before a text, and who says so."""

    add: bool
    rule: BosRule
    token: int | None
