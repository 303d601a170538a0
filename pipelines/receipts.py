"""Receipts: the evidence that a piece of the plan is finished, one JSON file each under `.ember/receipts/`.

A receipt is committed after its part files are in place, and at once: it is there whole or not at all, and the first
one wins. A prompt that was isolated has a receipt too, without parts and with its cause; a later run drops it and
tries again.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pipelines import placing
from pipelines.parts import EXPERIMENTS, TABLES, PartFile, suffix
from pipelines.pieces import NAME, Piece
from pipelines.state import RECEIPTS

NON_FINITE: Final = "non-finite"
EXPERIMENT: Final = "experiment"
LASTING: Final = (NON_FINITE, EXPERIMENT)
"""Kinds of failures that the same values and the same code bring about again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A prompt without a result, and why."""

    sample_index: int
    kind: str
    """`non-finite`, `experiment` (a hook failed), `signal`, `memory`, `time-out`, `exit`, `exception` or `unknown`."""
    detail: str
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one piece of the plan gave."""

    piece: str
    start: int
    end: int
    parts: tuple[PartFile, ...]
    rows: int
    """Token rows before sharing."""
    rows_computed: int
    """Token rows after sharing prefixes."""
    generated: int = 0
    """New tokens."""
    guard_nll: float | None = None
    """Mean negative log-likelihood in nats over the guard's positions."""
    guard_count: int = 0
    failures: tuple[Failure, ...] = ()
    ember: str = ""
    """Version that computed it."""

    @property
    def retried_later(self) -> bool:
        """Whether the next run tries again: what the values or an experiment's code decided stays as it is."""
        return any(failure.kind not in LASTING for failure in self.failures)


def path_of(run_dir: Path, piece: str) -> Path:
    """Where the receipt of a piece is."""
    return run_dir / RECEIPTS / f"{piece}.json"


def commit(run_dir: Path, attempt: str, receipt: Receipt) -> Receipt:
    """Put a receipt in place and return the one that stands: this one, or that of an earlier attempt.

    Raises RunError when the disk does not take it.
    """
    target = path_of(run_dir, receipt.piece)
    body = _encode(receipt)
    with (
        placing.disk_errors(run_dir, f"cannot write the receipt of unit {receipt.piece}", len(body)),
        placing.staged(run_dir, attempt, f"receipt-{receipt.piece}") as staged,
    ):
        staged.write_bytes(body)
        placing.sync_file(staged)
        first = placing.place(staged, target)
    return receipt if first else read(run_dir, receipt.piece) or receipt


def read(run_dir: Path, piece: str) -> Receipt | None:
    """Read the receipt of a piece; None when it is absent or damaged."""
    try:
        return _decode(path_of(run_dir, piece).read_bytes())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def names(run_dir: Path) -> list[str]:
    """Names of all pieces that have a receipt, in sample order."""
    return sorted(path.stem for path in (run_dir / RECEIPTS).glob("*.json") if NAME.fullmatch(path.stem))


def read_all(run_dir: Path) -> list[Receipt]:
    """All intact receipts of a run, in sample order."""
    return [receipt for name in names(run_dir) if (receipt := read(run_dir, name))]


def holds(run_dir: Path, receipt: Receipt, sha256: Callable[[Path], str] = placing.sha256_file) -> bool:
    """Whether all part files of a receipt are there with the recorded size and checksum."""
    for part in receipt.parts:
        path = run_dir / part.path
        try:
            if path.is_symlink() or path.stat().st_size != part.bytes or sha256(path) != part.sha256:
                return False
        except OSError:
            return False
    return True


def fits(receipt: Receipt, units: Mapping[str, Piece]) -> bool:
    """Whether a receipt's name and samples are those of a piece of the plan, whose units are given by name."""
    name, _, path = receipt.piece.partition("-")
    piece = units.get(name)
    for half in path:
        piece = piece.halves()[int(half)] if piece and piece.size > 1 else None
    return piece is not None and (piece.start, piece.end) == (receipt.start, receipt.end)


def drop(run_dir: Path, receipt: str) -> None:
    """Remove a receipt that does not hold."""
    with suppress(FileNotFoundError):
        path_of(run_dir, receipt).unlink()


def remove_strays(run_dir: Path, receipts: Iterable[Receipt]) -> list[str]:
    """Remove part files without a receipt, of attempts that ended between the two; returns their paths."""
    known = {part.path for receipt in receipts for part in receipt.parts}
    tables = (*TABLES, EXPERIMENTS)
    found = [path for table in tables for path in sorted((run_dir / table).glob(f"part-*.{suffix(table)}"))]
    strays = [path for path in found if path.relative_to(run_dir).as_posix() not in known]
    for path in strays:
        path.unlink()
    return [path.relative_to(run_dir).as_posix() for path in strays]


def _encode(receipt: Receipt) -> bytes:
    body = asdict(receipt)
    return json.dumps({**body, "check": _check(body)}, indent=1, sort_keys=True, ensure_ascii=False).encode()


def _decode(raw: bytes) -> Receipt:
    body: dict[str, Any] = json.loads(raw)
    if body.pop("check") != _check(body):
        raise ValueError("a damaged receipt")
    parts = tuple(PartFile(**part) for part in body.pop("parts"))
    failures = tuple(Failure(**failure) for failure in body.pop("failures"))
    return Receipt(**body, parts=parts, failures=failures)


def _check(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
