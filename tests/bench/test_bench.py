"""The benchmark's own parts, and the memory that the shape of a 1B model takes when its weights are streamed."""

import sys
from pathlib import Path

import numpy as np
import pytest

import ember
from ember.units import build_tree
from tests.bench.memory import LIMIT, measure
from tests.bench.peers import CeilingPeer, EmberPeer
from tests.bench.rounds import Contender
from tests.bench.rounds import measure as measure_rounds
from tests.bench.table import as_line, as_markdown
from tests.bench.workload import common_prefix, rows_after_sharing, texts
from tests.foundry.requantise import big_llama
from tests.foundry.tiny import tiny_llama


def test_prompts_are_distinct_and_always_the_same() -> None:
    assert len(set(texts())) == 200
    assert texts() == texts()


def test_rows_after_sharing_are_those_that_ember_computes(tmp_path: Path) -> None:
    tokenizer = ember.load_tokenizer(tiny_llama(tmp_path / "t.gguf"))
    prompts = [tokenizer.encode(text).ids for text in texts()]
    tree = build_tree([np.array(prompt, np.int32) for prompt in prompts])
    assert rows_after_sharing(prompts) == len(tree.tokens)
    assert common_prefix([[1, 2, 3], [1, 2], [1, 2, 4]]) == 2
    assert rows_after_sharing([[1, 2, 3], [1, 2, 3], [1, 2], [4]]) == 4


def test_peers_give_the_states_of_every_layer(tmp_path: Path) -> None:
    path, prompts = str(tiny_llama(tmp_path / "t.gguf")), [[1, 2, 3], [4, 5]]
    shape = {"layers": 3, "d": 64, "narrow": 16, "ffn": 96}
    assert EmberPeer(path, prompts, 1).run().shape == (2, 3, 64)
    assert CeilingPeer(path, prompts, 1, rows=5, last_rows=2, shape=shape).run().shape == (2, 3, 64)


def test_contenders_are_timed_in_every_round_and_written_down(tmp_path: Path) -> None:
    path = str(tiny_llama(tmp_path / "t.gguf"))
    request = {"peer": "ember", "model": path, "prompts": [[1, 2, 3], [4, 5], [6]], "threads": 1}
    timings = measure_rounds(
        [Contender("alone", sys.executable, request), Contender("two", sys.executable, request, 2)], 3
    )
    assert {label: len(timing.seconds) for label, timing in timings.items()} == {"alone": 3, "two": 3}
    record = {
        "machine": {"processor": "p", "cores": 2, "load": 0.5},
        "model": "m", "prompts": 3, "tokens": 6, "rows_after_sharing": 6, "rounds": 3, "threads": 1, "when": "today",
        "contenders": {label: as_line(t, 6) for label, t in timings.items()},
    }  # fmt: skip
    assert "belong to this machine" in as_markdown(record)


@pytest.mark.slow
def test_one_billion_parameters_streamed_take_less_than_the_limit(tmp_path: Path) -> None:
    """Three layers stand for sixteen: streamed weights are decoded layer by layer into the same scratch."""
    record = measure(big_llama(tmp_path / "big.gguf", n_layers=3))
    assert record["private_mb_highest"] * 1e6 < LIMIT
