"""Entering a run directory: made if it is new, swept and checked if it is not.

What holds is kept: a receipt whose part files have the recorded sizes and checksums. Everything else goes: staging of
attempts that ended, parts without a receipt, receipts without their parts, and those of isolated prompts, which are
tried again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines import journal, placing, receipts
from pipelines.errors import RunError
from pipelines.pieces import Piece, ancestors
from pipelines.receipts import Receipt
from pipelines.state import DEATHS, FOLDERS, LOCK


@dataclass(frozen=True, slots=True)
class Standing:
    """What an earlier session left."""

    kept: tuple[Receipt, ...]
    retried: tuple[str, ...]
    """Pieces that were isolated and are tried again."""
    damaged: tuple[str, ...]
    """Pieces whose receipt or part files did not hold."""


def make_directory(run_dir: Path) -> None:
    """Make a run directory with its `.ember`; raises RunError when that cannot be."""
    if run_dir.exists() and not run_dir.is_dir():
        raise RunError(f"output.dir {run_dir} is a file; give the name of a directory")
    with placing.disk_errors(run_dir, "cannot make the run directory", 0):
        for name in FOLDERS:
            (run_dir / name).mkdir(parents=True, exist_ok=True)


def check_still_there(run_dir: Path) -> None:
    """Raise RunError if the run directory was moved or removed."""
    if not (run_dir / LOCK).exists():
        raise RunError(f"{run_dir} was removed or moved during the run; nothing more can be written there")


def sweep(run_dir: Path) -> None:
    """Remove what attempts of earlier sessions left behind; nobody else writes here while the lock is held."""
    placing.clear_staging(run_dir)
    for path in (run_dir / DEATHS).iterdir():
        path.unlink(missing_ok=True)


def take_stock(run_dir: Path, units: Sequence[Piece]) -> Standing:
    """Check every receipt against the plan and its files; drop those that do not hold, and parts without a receipt."""
    by_name = {unit.name: unit for unit in units}
    kept: list[Receipt] = []
    retried: list[Receipt] = []
    damaged: list[str] = []
    with placing.disk_errors(run_dir, "cannot tidy the run directory", 0):
        for name in receipts.names(run_dir):
            receipt = receipts.read(run_dir, name)
            if receipt is not None and receipts.fits(receipt, by_name) and receipts.holds(run_dir, receipt):
                (retried if receipt.retried_later else kept).append(receipt)
            else:
                damaged.append(name)
        standing = outermost(kept)
        unwanted = {*damaged, *(r.piece for r in retried), *(r.piece for r in kept if r not in standing)}
        for name in unwanted:
            receipts.drop(run_dir, name)
        receipts.remove_strays(run_dir, standing)
    for name in damaged:
        journal.note(run_dir, "dropped", piece=name)
    return Standing(tuple(standing), tuple(r.piece for r in retried), tuple(damaged))


def outermost(found: Iterable[Receipt]) -> list[Receipt]:
    """Leave out receipts of halves of a piece that has a receipt itself.

    Both can be there when a worker that was thought dead came back after its unit had been split.
    """
    found = list(found)
    names = {receipt.piece for receipt in found}
    return [receipt for receipt in found if not names & set(ancestors(receipt.piece))]
