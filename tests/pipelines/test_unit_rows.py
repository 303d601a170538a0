import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ember.work import Produced
from pipelines.unit_file import CaptureTable, UnitFile
from pipelines.unit_rows import capture_rows, generation_row


class Letters:
    """A tokenizer whose ids are code points."""

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


def unit_file(positions: list[list[int]], *, pooled: bool) -> UnitFile:
    """Prompts of ten tokens, token p of sample s being 100 s + p."""
    samples = len(positions)
    starts = np.concatenate([[0], np.cumsum([len(p) for p in positions])]).astype(np.int64)
    flat = np.array([p for row in positions for p in row], np.int32)
    capture = CaptureTable("c", "after_layer", (0, 1), pooled, flat, starts)
    tokens = np.array([100 * s + p for s in range(samples) for p in range(10)], np.int32)
    return UnitFile(
        tokens,
        np.arange(samples + 1, dtype=np.int64) * 10,
        frozenset({0, 100, 200}),
        tuple(f"id{s}" for s in range(samples)),
        (" yes",) * samples,
        ("prefix",) * samples,
        (capture,),
        4,
        (1,),
    )


@given(
    st.lists(st.lists(st.integers(0, 9), unique=True, max_size=4).map(sorted), min_size=1, max_size=6),
    st.booleans(),
    st.data(),
)
def test_every_value_gets_its_own_keys(positions: list[list[int]], pooled: bool, data: st.DataObject) -> None:
    units = unit_file(positions, pooled=pooled)
    start = data.draw(st.integers(0, len(positions) - 1))
    end = data.draw(st.integers(start + 1, len(positions)))
    good = data.draw(st.lists(st.sampled_from(range(end - start)), unique=True, min_size=1).map(sorted))
    # The engine's rows of the whole unit; each value says whose it is.
    owners = [(s, p) for s in range(start, end) for p in ([-1] if pooled and positions[s] else positions[s])]
    values = np.zeros((2, len(owners), 3), np.float32)
    for row, (sample, place) in enumerate(owners):
        values[:, row] = 100 * sample + place
    rows = capture_rows(units, units.captures[0], range(start, end), good, values)
    rows.check(start, end)
    assert set(rows.sample_index.tolist()) <= {start + i for i in good}
    wanted = [(s, p) for s, p in owners if s - start in good]
    assert list(zip(rows.sample_index.tolist(), rows.position.tolist(), strict=True)) == wanted
    for row, (sample, place) in enumerate(wanted):
        assert (rows.values[:, row] == 100 * sample + place).all()
        assert rows.stimulus_id[row] == f"id{sample}"
        assert rows.token_id[row] == (-1 if pooled else 100 * sample + place)
        assert rows.is_special[row] == (not pooled and 100 * sample + place in {0, 100, 200})


def test_a_stopping_token_is_no_part_of_the_text() -> None:
    units = unit_file([[0], [0]], pooled=False)
    stopped = generation_row(units, 1, Produced((*map(ord, " yes!"), 1), "stop"), Letters())  # type: ignore[arg-type]
    assert (stopped.text, stopped.token_ids[-1], stopped.correct, stopped.match_raw) == (" yes!", 1, True, True)
    cut = generation_row(units, 0, Produced(tuple(map(ord, "\nno")), "length"), Letters())  # type: ignore[arg-type]
    assert (cut.text, cut.correct, cut.stimulus_id, cut.prompt_tokens) == ("\nno", False, "id0", 10)
