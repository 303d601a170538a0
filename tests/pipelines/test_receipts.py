from pathlib import Path

import pytest

from pipelines import placing, receipts
from pipelines.parts import PartFile
from pipelines.pieces import Piece
from pipelines.receipts import Failure, Receipt
from pipelines.resume import make_directory, outermost, take_stock

UNITS = [Piece(0, "", 0, 4), Piece(1, "", 4, 8)]


def part(run_dir: Path, piece: str, start: int, end: int, body: bytes = b"rows") -> PartFile:
    path = run_dir / f"activations/part-{piece}.parquet"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(body)
    digest = placing.sha256_file(path)
    return PartFile("activations", f"activations/part-{piece}.parquet", 4, len(body), digest, "c" * 64, start, end)


def receipt(run_dir: Path, piece: str, start: int, end: int) -> Receipt:
    return Receipt(piece, start, end, (part(run_dir, piece, start, end),), 40, 30, guard_nll=1.5, guard_count=12)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    make_directory(tmp_path)
    return tmp_path


def test_what_is_committed_is_read_back(run_dir: Path) -> None:
    given = receipt(run_dir, "00000", 0, 4)
    assert receipts.commit(run_dir, "a1", given) == given
    assert receipts.read(run_dir, "00000") == given
    assert receipts.holds(run_dir, given)
    assert not any((run_dir / placing.STAGING).iterdir())


def test_the_first_receipt_wins(run_dir: Path) -> None:
    first = receipt(run_dir, "00000", 0, 4)
    receipts.commit(run_dir, "a1", first)
    second = Receipt("00000", 0, 4, first.parts, 40, 30, guard_nll=9.0, guard_count=1)
    assert receipts.commit(run_dir, "a2", second) == first
    assert receipts.read(run_dir, "00000") == first


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "list"])
def test_a_damaged_receipt_is_none(run_dir: Path, damage: str) -> None:
    receipts.commit(run_dir, "a1", receipt(run_dir, "00000", 0, 4))
    path = receipts.path_of(run_dir, "00000")
    body = path.read_bytes()
    path.write_bytes(
        {"truncate": body[:-20], "flip": body.replace(b'"rows": 40', b'"rows": 41'), "empty": b"", "list": b"[]"}[
            damage
        ]
    )
    assert receipts.read(run_dir, "00000") is None
    standing = take_stock(run_dir, UNITS)
    assert standing.damaged == ("00000",)
    assert not path.exists()


@pytest.mark.parametrize("damage", ["gone", "shorter", "changed", "symlink"])
def test_a_receipt_whose_part_does_not_hold_is_dropped_with_it(run_dir: Path, damage: str) -> None:
    kept, lost = receipt(run_dir, "00000", 0, 4), receipt(run_dir, "00001", 4, 8)
    for given in (kept, lost):
        receipts.commit(run_dir, "a", given)
    path = run_dir / lost.parts[0].path
    if damage == "symlink":
        path.rename(run_dir / "elsewhere")
        path.symlink_to(run_dir / "elsewhere")
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"row" if damage == "shorter" else b"RowS")
    standing = take_stock(run_dir, UNITS)
    assert (standing.kept, standing.damaged) == ((kept,), ("00001",))
    assert receipts.names(run_dir) == ["00000"]
    # The damaged part is gone too, so that the unit can be put in place again.
    assert [p.name for p in (run_dir / "activations").iterdir()] == ["part-00000.parquet"]


def test_parts_without_a_receipt_are_removed(run_dir: Path) -> None:
    receipts.commit(run_dir, "a", receipt(run_dir, "00000", 0, 4))
    part(run_dir, "00001", 4, 8)
    (run_dir / "activations/notes.txt").write_text("the user's own")
    take_stock(run_dir, UNITS)
    assert sorted(p.name for p in (run_dir / "activations").iterdir()) == ["notes.txt", "part-00000.parquet"]


@pytest.mark.parametrize("name", ["00002", "00000-0"])
def test_a_receipt_that_is_not_of_the_plan_is_dropped(run_dir: Path, name: str) -> None:
    receipts.commit(run_dir, "a", receipt(run_dir, name, 0, 3))
    assert take_stock(run_dir, UNITS).damaged == (name,)


def test_isolated_prompts_are_tried_again_and_values_that_are_not_finite_are_not(run_dir: Path) -> None:
    killed = Receipt("00000-00", 0, 1, (), 9, 0, failures=(Failure(0, "signal", "signal 9", 2),))
    infinite = Receipt("00000-01", 1, 2, (), 9, 9, failures=(Failure(1, receipts.NON_FINITE, "after layer 5"),))
    for given in (killed, infinite):
        receipts.commit(run_dir, "a", given)
    standing = take_stock(run_dir, UNITS)
    assert (standing.kept, standing.retried, standing.damaged) == ((infinite,), ("00000-00",), ())


def test_a_late_receipt_of_the_whole_unit_wins_over_its_halves(run_dir: Path) -> None:
    whole, half = receipt(run_dir, "00000", 0, 4), receipt(run_dir, "00000-0", 0, 2)
    for given in (whole, half):
        receipts.commit(run_dir, "a", given)
    assert outermost([half, whole]) == [whole]
    assert take_stock(run_dir, UNITS).kept == (whole,)
    assert [p.name for p in (run_dir / "activations").iterdir()] == ["part-00000.parquet"]
