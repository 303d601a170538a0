import pytest

from ember.errors import InputError
from ember.positions import Position, resolve, tokens_of_span
from ember.work import ALL_STEPS


@pytest.mark.parametrize(
    ("position", "indices"),
    [
        (Position(), (4,)),
        (Position("index", 0), (0,)),
        (Position("from_end", 1), (3,)),
        (Position("all"), (0, 1, 2, 3, 4)),
        (Position("mean"), (0, 1, 2, 3, 4)),
        (Position("span", part="first"), (1,)),
        (Position("span", part="final"), (2,)),
        (Position("span", part="all"), (1, 2)),
        (Position("span", part="mean"), (1, 2)),
    ],
)
def test_selectors_of_a_prompt(position: Position, indices: tuple[int, ...]) -> None:
    assert resolve(position, 5, (1, 3)) == indices
    assert position.step is None
    assert position.pooled == (position.kind == "mean" or position.part == "mean")


@pytest.mark.parametrize("position", [Position("index", 5), Position("from_end", 5), Position("index", -1)])
def test_tokens_that_do_not_exist(position: Position) -> None:
    with pytest.raises(InputError, match="does not exist in a prompt of 5 tokens"):
        resolve(position, 5)


def test_a_span_needs_its_text() -> None:
    with pytest.raises(InputError, match="needs a target text"):
        resolve(Position("span"), 5)
    assert tokens_of_span([(0, 0), (0, 3), (3, 5), (5, 9)], 2, 4) == (1, 3)


@pytest.mark.parametrize("step", [0, 7, ALL_STEPS])
def test_generated_steps_are_no_tokens_of_the_prompt(step: int) -> None:
    position = Position("generated", step)
    assert position.step == step
    assert not position.pooled
    with pytest.raises(InputError, match="steps after the prompt"):
        resolve(position, 5)
