from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ember.work import ALL_STEPS, Produced
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


@given(
    st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6),
    st.one_of(st.just(ALL_STEPS), st.integers(0, 4)),
    st.data(),
)
def test_rows_of_steps_carry_what_was_fed_and_produced(
    prompts: list[tuple[int, bool]], step: int, data: st.DataObject
) -> None:
    n = len(prompts)
    units = unit_file([[] for _ in prompts], pooled=False)
    units = replace(units, captures=(replace(units.captures[0], step=step, on_steps=tuple(on for _, on in prompts)),))
    produced = [Produced(tuple(1000 * s + t for t in range(count)), "length") for s, (count, _) in enumerate(prompts)]
    lost = data.draw(st.sets(st.integers(0, n - 1)))
    good = data.draw(st.sets(st.integers(0, n - 1))) - lost
    # What the engine gives: prompts that were not lost, in order, each with its steps.
    there = [
        (s, t) for s, (count, on) in enumerate(prompts) if on and s not in lost
        for t in range(count - 1) if step in (ALL_STEPS, t)
    ]  # fmt: skip
    values = np.array([[[100 * s + t] * 3 for s, t in there]] * 2, np.float32).reshape(2, len(there), 3)
    rows = capture_rows(
        units,
        units.captures[0],
        range(n),
        good,
        values,
        produced=produced,
        lost=lost,
        is_special=lambda token: token % 2 == 0,
    )
    rows.check(0, n)
    wanted = [(s, t) for s, t in there if s in good]
    assert list(zip(rows.sample_index.tolist(), rows.step.tolist(), strict=True)) == wanted
    for row, (s, t) in enumerate(wanted):
        assert (rows.values[:, row] == 100 * s + t).all()
        assert (rows.position[row], rows.token_id[row], rows.produced_id[row]) == (
            10 + t,
            1000 * s + t,
            1000 * s + t + 1,
        )
        assert rows.is_special[row] == (t % 2 == 0)


def test_a_stopping_token_is_no_part_of_the_text() -> None:
    units = unit_file([[0], [0]], pooled=False)
    stopped = generation_row(units, 1, Produced((*map(ord, " yes!"), 1), "stop"), Letters())  # type: ignore[arg-type]
    assert (stopped.text, stopped.token_ids[-1], stopped.correct, stopped.match_raw) == (" yes!", 1, True, True)
    cut = generation_row(units, 0, Produced(tuple(map(ord, "\nno")), "length"), Letters())  # type: ignore[arg-type]
    assert (cut.text, cut.correct, cut.stimulus_id, cut.prompt_tokens) == ("\nno", False, "id0", 10)
