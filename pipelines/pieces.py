"""Pieces of the plan: units, and the halves that a unit is split into when it kills its worker.

A leaf of pure records. A piece is named after its place: unit 7 is `00007`; its halves are `00007-0` and `00007-1`,
their halves `00007-00`, `00007-01` and so on. A piece that was split has no files of its own, so the names of those
that have, sorted as text, are in sample order, and so are the part files `part-00007-01.parquet`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

NAME: Final = re.compile(r"\d{5,}(-[01]+)?")


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Samples [start, end) of one unit, all of it or what a number of halvings left."""

    unit: int
    path: str
    """Empty for a whole unit; else a 0 (first half) or 1 (second half) for each halving."""
    start: int
    end: int

    @property
    def name(self) -> str:
        """Name of the piece in receipts and part files."""
        return f"{self.unit:05d}-{self.path}" if self.path else f"{self.unit:05d}"

    @property
    def size(self) -> int:
        """Samples in the piece."""
        return self.end - self.start

    def halves(self) -> tuple["Piece", "Piece"]:
        """Both halves; the first is the smaller one when the number of samples is odd."""
        middle = (self.start + self.end) // 2
        return (
            Piece(self.unit, self.path + "0", self.start, middle),
            Piece(self.unit, self.path + "1", middle, self.end),
        )


def open_pieces(units: Iterable[Piece], done: Iterable[str]) -> list[Piece]:
    """Pieces of `units` still to be run when those named in `done` are finished, in sample order.

    A unit counts as split, and stays so, once any piece below it is done.
    """
    done = set(done)
    split = set(split_pieces(done))

    def walk(piece: Piece) -> list[Piece]:
        if piece.name in done:
            return []
        if piece.name not in split or piece.size < 2:
            return [piece]
        return [open_piece for half in piece.halves() for open_piece in walk(half)]

    return [piece for unit in units for piece in walk(unit)]


def split_pieces(names: Iterable[str]) -> list[str]:
    """Names of all pieces that were split, given the names of those that remained; sorted."""
    return sorted({ancestor for name in names for ancestor in ancestors(name)})


def ancestors(name: str) -> list[str]:
    """Names of the pieces that a piece is a half of, a half of a half, and so on; largest first."""
    unit, _, path = name.partition("-")
    return [f"{unit}-{path[:n]}" if n else unit for n in range(len(path))]
