"""From what the engine said to columns: which score is whose, what is chosen, where a text ends."""

import math

import numpy as np
import pytest

from ember.scoring import Cut
from ember.work import Produced, Score, TopTokens, UnitResult
from pipelines.continuations import Choosing, ContinuationTable, SampleTexts
from pipelines.rows import NOT_SCORED
from pipelines.score_rows import score_rows
from pipelines.unit_file import UnitFile
from pipelines.unit_rows import generation_row

TEXTS = [
    SampleTexts(Cut((1, 2), True), ("x", "كتب"), (Cut((3,), False), Cut((4, 5, 6), False))),
    SampleTexts(None, ("x", "كتب"), (Cut((3,), False), Cut((4, 5, 6), True))),
    SampleTexts(Cut((7,), False), ("كتب", "ab"), (Cut((4, 5, 6), False), Cut((8, 9), False))),
]
EXPECTED = (" yes", None, "ab")


class Bytes:
    """A tokenizer whose ids are bytes."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids: list[int]) -> bytes:
        return bytes(ids)


def unit_file(*, top_k: int = 0, choosing: Choosing | None = None, texts: list[SampleTexts] | None = None) -> UnitFile:
    """Three samples of two tokens."""
    return UnitFile(
        tokens=np.arange(6, dtype=np.int32),
        starts=np.arange(0, 8, 2, dtype=np.int64),
        special_ids=frozenset(),
        ids=("a", "b", "c"),
        expected=EXPECTED,
        expect_modes=("exact",) * 3,
        captures=(),
        max_tokens=8,
        stop_ids=(0,),
        choosing=choosing or Choosing(),
        scores=ContinuationTable.of(TEXTS if texts is None else texts),
        top_k=top_k,
    )


def result(scores: list[Score], top: list[TopTokens]) -> UnitResult:
    return UnitResult([], [], 0, 0, scores=scores, top=top)


def test_scores_go_to_their_samples_in_order() -> None:
    units = unit_file(top_k=2)
    work = units.work(1, 3, 0).continuations
    assert [(one.prompt, one.tokens) for one in work] == [
        (0, (3,)), (0, (4, 5, 6)), (1, (7,)), (1, (4, 5, 6)), (1, (8, 9)),
    ]  # fmt: skip
    scores = [
        Score((-0.5,), (1,)), Score((-0.1, -0.1, -0.1), (1, 1, 1)),
        Score((-2.0,), (9,)), Score((-1.0, -1.0, -1.0), (1, 1, 1)), Score((-1.5, -0.5), (2, 3)),
    ]  # fmt: skip
    second, third = score_rows(units, 1, 3, result(scores, [TopTokens((5, 6), (-0.1, -3.0)), TopTokens((), ())]))
    assert math.isnan(second.expected_log_probability)
    assert (second.expected_tokens, second.expected_rank, tuple(second.choices)) == (-1, -1, ("x", "كتب"))
    assert (second.choice, second.choice_per_token, second.choice_per_byte) == (1, 1, 1)
    assert not second.choice_correct
    assert (list(second.choice_merged), list(second.choice_tokens)) == ([False, True], [1, 3])
    assert (second.top_ids, second.top_log_probabilities) == ((5, 6), (-0.1, -3.0))
    assert (third.expected_log_probability, third.expected_rank, third.merged) == (-2.0, 9, False)
    assert (third.expected_tokens, third.expected_bytes, third.expected_characters) == (1, 2, 2)
    assert list(third.choice_log_probabilities) == [-3.0, -2.0]
    assert (third.choice, third.choice_per_token, third.choice_per_byte) == (1, 0, 0)
    assert third.choice_correct


def test_nothing_asked_leaves_the_columns_empty() -> None:
    units = unit_file(texts=[SampleTexts(None, (), ())] * 3)
    assert score_rows(units, 0, 3, result([], [])) == [NOT_SCORED] * 3


@pytest.mark.parametrize(
    ("said", "stop", "text"),
    [
        ("واحد اثنان ثلاثة", ("نان",), "واحد اث"),
        ("one two", ("two", "e t"), "on"),
        ("one two", ("x",), "one two"),
        ("one\n", ("\n",), "one"),
        ("no", ("no",), ""),
    ],
)
def test_a_text_ends_before_the_first_stop_text(said: str, stop: tuple[str, ...], text: str) -> None:
    units = unit_file(choosing=Choosing(temperature=1.0, seed=9, stop=stop))
    row = generation_row(units, 0, Produced(tuple(said.encode()), "text"), Bytes())  # type: ignore[arg-type]
    assert (row.text, row.stopped, row.seed, bytes(row.token_ids).decode()) == (text, "text", 9, said)


def test_greedy_rows_have_no_seed_and_rows_without_continuation_no_judgement() -> None:
    row = generation_row(unit_file(), 0, Produced(tuple(b" yes"), "length"), Bytes())  # type: ignore[arg-type]
    assert (row.seed, row.correct) == (-1, True)
    row = generation_row(unit_file(choosing=Choosing(temperature=1.0)), 0, None, Bytes())  # type: ignore[arg-type]
    assert (row.seed, row.correct, row.text, row.stopped, row.match_raw) == (-1, False, "", "", False)


def test_a_unit_draws_with_the_ids_of_its_stimuli() -> None:
    sampling = unit_file(choosing=Choosing(0.7, 5, 0.9, 3)).work(1, 3, 0).sampling
    assert sampling is not None
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed) == (0.7, 5, 0.9, 3)
    assert sampling.keys == ("b", "c")
    assert unit_file().work(0, 3, 0).sampling is None
