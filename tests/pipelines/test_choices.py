"""Layers, positions and filters, worked out by hand."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ember.errors import InputError
from ember.positions import Position
from pipelines.choices import for_each, layers_of, position_of, selected, tokens_at
from pipelines.config.selectors import parse_layers, parse_position, parse_where
from pipelines.errors import ConfigError
from pipelines.stimuli.record import Stimulus, Target


@dataclass(frozen=True)
class Sample:
    labels: dict[str, str] = field(default_factory=dict)
    n: int = 5
    span_tokens: tuple[int, int] | None = (1, 3)
    name: str = "s"

    @property
    def stimulus(self) -> Stimulus:
        return Stimulus(0, self.name, "text", self.labels, None, (), None, None, "exact")

    @property
    def tokens(self) -> Any:
        return np.arange(self.n, dtype=np.int32)


@pytest.mark.parametrize(
    ("written", "layers"),
    [
        ("all", (0, 1, 2, 3)),
        ([-1, 0, 3], (0, 3)),
        ({"from": 1, "to": 2}, (1, 2)),
        ({"from": -2, "to": -1}, (2, 3)),
        ({"from": 1, "to": -1}, (1, 2, 3)),
        ("{where}", (2,)),
        (["{where}", 0], (0, 2)),
        ({"from": "{where}", "to": 3}, (2, 3)),
        ("{last}", (3,)),
        ("{every}", (0, 1, 2, 3)),
    ],
)
def test_layers(written: Any, layers: tuple[int, ...]) -> None:
    sample = Sample({"where": "2", "last": "-1", "every": "all"})
    assert layers_of(parse_layers(written), "after_layer", 4, sample) == layers


def test_sites_without_layers() -> None:
    assert layers_of(None, "after_logits", 4, Sample()) == (-1,)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ([0, 4, -5], r"layers \[4, -5\] do not exist; the model has 4, counted from 0 to 3"),
        ({"from": 2, "to": 4}, r"layers \[4\] do not exist"),
        ({"from": -1, "to": 1}, "layers 3 to 1 are none"),
        ("{absent}", "it has no label 'absent'"),
        ("{word}", "layer 'seven' is no whole number"),
        ("{far}", r"layers \[9\] do not exist"),
        ("{arabic}", "is no whole number"),
    ],
)
def test_layers_that_cannot_be(written: Any, said: str) -> None:
    sample = Sample({"word": "seven", "far": "9", "arabic": "٣"})
    with pytest.raises(InputError, match=said):
        layers_of(parse_layers(written), "after_layer", 4, sample)


@pytest.mark.parametrize(
    ("written", "position"),
    [
        ("last", Position()),
        ("{at}", Position("index", 3)),
        ("{back}", Position("from_end", 1)),
        ("{word}", Position("span")),
        ({"index": "{at}"}, Position("index", 3)),
        ({"from_end": "{at}"}, Position("from_end", 3)),
        ({"generated": "{at}"}, Position("generated", 3)),
    ],
)
def test_positions_from_labels(written: Any, position: Position) -> None:
    assert position_of(parse_position(written), Sample({"at": "3", "back": "-2", "word": "span"})) == position


@pytest.mark.parametrize("written", ["{absent}", "{mean}", {"index": "{back}"}, "{none}"])
def test_positions_that_labels_do_not_give(written: Any) -> None:
    with pytest.raises(InputError):
        position_of(parse_position(written), Sample({"mean": "mean", "back": "-2", "none": ""}))


def test_tokens() -> None:
    assert tokens_at(Position("span", part="all"), Sample()) == (1, 2)
    with pytest.raises(InputError, match="does not exist"):
        tokens_at(Position("index", 5), Sample())


SAMPLES = [Sample({"kind": "clean", "n": "1"}), Sample({"kind": "corrupt", "n": "1"}), Sample({"kind": "clean"})]


@pytest.mark.parametrize(
    ("where", "on"),
    [
        ({"kind": "clean"}, [True, False, True]),
        ({"kind": ["corrupt", "other"]}, [False, True, False]),
        ({"n": "1"}, [True, True, False]),
        ({"n": "1", "kind": "clean"}, [True, False, False]),
    ],
)
def test_filters(where: Any, on: list[bool]) -> None:
    assert selected(parse_where(where), SAMPLES, "k") == on
    assert selected((), SAMPLES, "k") == [True] * 3


def test_filters_that_mean_nothing() -> None:
    with pytest.raises(
        ConfigError, match=r"^k.where: no stimulus has a label 'kid'; did you mean 'kind'\?; labels: kind, n"
    ):
        selected(parse_where({"kid": "clean"}), SAMPLES, "k")
    with pytest.raises(
        ConfigError, match=r"^k.where: no stimulus fits \(kind is 'dirty'\); values of 'kind' are 'clean', 'corrupt'"
    ):
        selected(parse_where({"kind": "dirty"}), SAMPLES, "k")


def test_all_that_cannot_are_named() -> None:
    samples = [Sample(name=f"s{i}") for i in range(4)]

    def choose(i: int) -> int:
        if i % 2:
            raise InputError(f"no {i}")
        return 10 * i

    assert for_each(samples, [True, False, True, False], choose, "p", "r") == {0: 0, 2: 20}
    with pytest.raises(ConfigError, match=r"^2 stimuli p: 's1' \(no 1\), 's3' \(no 3\); r$"):
        for_each(samples, [True] * 4, choose, "p", "r")


def test_an_occurrence_of_the_target_is_found_in_the_bytes() -> None:
    @dataclass(frozen=True)
    class Twice(Sample):
        @property
        def stimulus(self) -> Stimulus:
            return Stimulus(0, "s", "كتب ما كتب", {}, None, (), Target("كتب", 0, 6), None, "exact")

        @property
        def offsets(self) -> Any:
            # a BOS, three words and the spaces between them
            return np.array([(0, 0), (0, 6), (6, 7), (7, 11), (11, 12), (12, 18)], np.int32)

    sample = Twice(n=6, span_tokens=(1, 2))
    assert tokens_at(Position("span"), sample) == (1,)
    assert tokens_at(Position("span", occurrence=1), sample) == (1,)
    assert tokens_at(Position("span", part="all", occurrence=2), sample) == (5,)
    with pytest.raises(InputError, match="'كتب' occurs 2 times, not 3"):
        tokens_at(Position("span", occurrence=3), sample)
    with pytest.raises(InputError, match="it has no target"):
        tokens_at(Position("span", occurrence=1), Sample())
