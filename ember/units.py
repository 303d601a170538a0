"""Cutting prompts into units, and the tree of prefixes that a unit shares.

A leaf: pure functions of token ids, used by the plan and by the engine alike, so that both count the same rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ember.work import Tokens

_SIGN: Final = np.uint32(1 << 31)


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Rows of a unit after sharing: a row is one token with one history, computed once."""

    tokens: NDArray[np.int32]
    """[rows] token ids; a row's history always stands before it."""
    positions: NDArray[np.int32]
    """[rows] absolute position of each row in its prompts."""
    owners: NDArray[np.int32]
    """[rows] the first prompt that has the row."""
    rows: NDArray[np.int32]
    """Flat list of row indices, prompt after prompt; `row_of` reads it."""
    starts: NDArray[np.int64]
    """[paths + 1] where each path's rows start in `rows`: first the prompts, then continuations."""
    bases: NDArray[np.int32]
    """[paths] the prompt that each path is, or continues."""

    @property
    def n_prompts(self) -> int:
        """Paths that are prompts; continuations follow them."""
        return int(self.bases.max(initial=-1)) + 1

    @property
    def ends(self) -> NDArray[np.int32]:
        """[prompts] row of each prompt's last token."""
        return self.rows[self.starts[1 : self.n_prompts + 1] - 1]

    def row_of(self, prompt: int, position: int) -> int:
        """Row that holds `position` of `prompt`."""
        return int(self.rows[self.starts[prompt] + position])

    def places(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """[rows of the tree] place of each among `rows`, or -1."""
        where = np.full(len(self.tokens), -1, np.int32)
        where[rows] = np.arange(len(rows), dtype=np.int32)
        return where

    def path(self, prompt: int) -> NDArray[np.int32]:
        """All rows of a prompt or continuation, in position order."""
        return self.rows[self.starts[prompt] : self.starts[prompt + 1]]


def build_tree(
    prompts: Sequence[Tokens],
    private_from: Sequence[int] | None = None,
    continuations: Sequence[tuple[int, Sequence[int]]] = (),
) -> PrefixTree:
    """Merge equal prefixes (same ids at the same positions) of `prompts`.

    Rows of a prompt from position `private_from[prompt]` on are its own, whatever others have there. A continuation
    (prompt, tokens) adds rows for all its tokens but the last; it shares them with its prompt's others only.
    """
    known: dict[tuple[int, int, int], int] = {}
    tokens: list[int] = []
    positions: list[int] = []
    owners: list[int] = []
    rows: list[int] = []
    starts = [0]
    limits = [len(prompt) for prompt in prompts] if private_from is None else [*private_from]
    paths = [(base, prompt.tolist(), limits[base]) for base, prompt in enumerate(prompts)]
    for base, more in continuations:
        limit = min(limits[base], len(prompts[base]))
        paths.append((base, prompts[base].tolist() + list(more[:-1]), limit))
    for owner, (base, path, limit) in enumerate(paths):
        row = -1
        for position, token in enumerate(path):
            parent = row
            row = known.setdefault((parent, token, -1 if position < limit else base), len(tokens))
            if row == len(tokens):
                tokens.append(token)
                positions.append(position)
                owners.append(owner)
            rows.append(row)
        starts.append(len(rows))
    as_int = np.int32
    return PrefixTree(
        np.array(tokens, as_int),
        np.array(positions, as_int),
        np.array(owners, as_int),
        np.array(rows, as_int),
        np.array(starts, np.int64),
        np.array([base for base, _, _ in paths], as_int),
    )


def plan_order(prompts: Sequence[Tokens]) -> list[int]:
    """Order of prompts that brings equal prefixes together: by token ids, ties by their given order."""
    return sorted(range(len(prompts)), key=lambda i: _sorting_bytes(prompts[i]))


def _sorting_bytes(prompt: Tokens) -> bytes:
    """Bytes that compare as the token ids do, in an eighth of the memory of a list."""
    return (np.asarray(prompt, np.int32).view(np.uint32) ^ _SIGN).astype(">u4").tobytes()


def shared_prefix(a: Tokens, b: Tokens) -> int:
    """Tokens that `a` and `b` have in common from the start."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


def cut_units(
    prompts: Sequence[Tokens],
    unit_rows: int,
    private_from: Sequence[int] | None = None,
    extra_rows: Sequence[int] | None = None,
) -> list[tuple[int, int]]:
    """Half-open ranges of consecutive prompts, each of at most `unit_rows` rows after sharing.

    `prompts` are in plan order. A prompt longer than a unit stands alone. `private_from` is that of `build_tree`;
    `extra_rows` counts what each prompt's continuations add.
    """
    units: list[tuple[int, int]] = []
    start = rows = common = 0  # `common`: leading tokens of the prompt before that others may share
    for i, prompt in enumerate(prompts):
        limit = len(prompt) if private_from is None else min(private_from[i], len(prompt))
        extra = 0 if extra_rows is None else extra_rows[i]
        there = min(shared_prefix(prompts[i - 1], prompt), common) if i > start else 0
        fresh = len(prompt) - min(there, limit) + extra
        if i > start and rows + fresh > unit_rows:
            units.append((start, i))
            start, rows, there, fresh = i, 0, 0, len(prompt) + extra
        rows += fresh
        common = max(there, limit)
    if prompts:
        units.append((start, len(prompts)))
    return units


LEAST_UNIT: Final = 512
"""Rows under which a unit is not worth its own decoding of all weights."""
MOST_UNIT: Final = 4096


def default_unit_rows(total_rows: int) -> int:
    """A sixteenth of all rows, at least 512 and at most 4096: from the plan, never from the workers.

    Fewer would decode all weights, and read them for every generated token, for the sake of a few prompts.
    """
    return max(LEAST_UNIT, min(MOST_UNIT, -(-total_rows // 16)))
