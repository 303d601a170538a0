from hypothesis import given
from hypothesis import strategies as st

from pipelines.parts import part_path
from pipelines.pieces import NAME, Piece, ancestors, open_pieces, split_pieces


def test_halves_and_names() -> None:
    unit = Piece(7, "", 10, 15)
    first, second = unit.halves()
    assert (unit.name, first.name, second.name) == ("00007", "00007-0", "00007-1")
    assert [(p.start, p.end) for p in (first, second)] == [(10, 12), (12, 15)]
    assert second.halves()[0] == Piece(7, "10", 12, 13)


def test_what_is_open() -> None:
    unit = Piece(7, "", 10, 15)
    assert open_pieces([unit], []) == [unit]
    assert open_pieces([unit], ["00007"]) == []
    # Once a half is done the unit stays split, for its halves' parts are in place.
    assert [p.name for p in open_pieces([unit], ["00007-01"])] == ["00007-00", "00007-1"]
    assert split_pieces(["00007-01", "00007-1", "00008"]) == ["00007", "00007-0"]
    assert ancestors("00007-01") == ["00007", "00007-0"]


@st.composite
def split_trees(draw: st.DrawFn) -> list[Piece]:
    """Units of consecutive samples, split at random down to single samples."""
    leaves, start = [], 0
    for index in range(draw(st.integers(1, 4))):
        end = start + draw(st.integers(1, 20))
        waiting = [Piece(index, "", start, end)]
        while waiting:
            piece = waiting.pop()
            if piece.size > 1 and draw(st.booleans()):
                waiting.extend(piece.halves())
            else:
                leaves.append(piece)
        start = end
    return leaves


@given(split_trees())
def test_names_sort_as_samples_do(leaves: list[Piece]) -> None:
    by_name = sorted(leaves, key=lambda piece: part_path("activations", piece.name))
    assert by_name == sorted(leaves, key=lambda piece: piece.start)
    assert [piece.end for piece in by_name[:-1]] == [piece.start for piece in by_name[1:]]
    assert all(NAME.fullmatch(piece.name) for piece in leaves)


@given(split_trees(), st.data())
def test_what_is_done_and_what_is_open_cover_everything(leaves: list[Piece], data: st.DataObject) -> None:
    units = [Piece(i, "", min(p.start for p in mine), max(p.end for p in mine)) for i, mine in _by_unit(leaves)]
    done = [piece for piece in leaves if data.draw(st.booleans())]
    still = open_pieces(units, [piece.name for piece in done])
    covered = sorted([*done, *still], key=lambda piece: piece.start)
    assert covered[0].start == 0
    assert [p.end for p in covered[:-1]] == [p.start for p in covered[1:]]
    assert covered[-1].end == units[-1].end


def _by_unit(leaves: list[Piece]) -> list[tuple[int, list[Piece]]]:
    return [(unit, [p for p in leaves if p.unit == unit]) for unit in sorted({p.unit for p in leaves})]
