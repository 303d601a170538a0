"""The benchmark's own parts, and the memory that the shape of a 1B model takes when its weights are streamed."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest

import ember
from ember.units import build_tree
from tests.bench.__main__ import ROWS, _rows
from tests.bench.decoders import EmberDecoder
from tests.bench.decoding import agreeing
from tests.bench.memory import LIMIT, measure
from tests.bench.peers import CeilingPeer, EmberPeer, PeakPeer, _groups
from tests.bench.processes import _growth
from tests.bench.rounds import Contender
from tests.bench.rounds import measure as measure_rounds
from tests.bench.setting import Ratio, Row, Setting, as_line, ratio
from tests.bench.table import as_markdown, as_record
from tests.bench.workload import common_prefix, few_shot, long_prompts, rows_after_sharing, texts, unshared
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
    resident, streamed = EmberPeer(path, prompts, 1), EmberPeer(path, prompts, 1, streamed=True)
    assert resident.run().shape == (2, 3, 64)
    assert np.array_equal(resident.run(), streamed.run())


def test_ceilings_multiply_the_rows_of_their_prompts(tmp_path: Path) -> None:
    path, prompts = str(tiny_llama(tmp_path / "t.gguf")), [[1, 2, 3], [1, 2]]
    shared, whole = (CeilingPeer(path, prompts, 1, shared=shared) for shared in (True, False))
    keys, rest = 2 * 16 * 64, 2 * 64 * 64 + 3 * 96 * 64
    assert shared.about["flops"] == 2 * (3 * 3 * keys + (2 * 3 + 2) * rest)
    assert whole.about["flops"] == 2 * (3 * 5 * keys + (2 * 5 + 2) * rest)
    shared.run()
    assert PeakPeer(path, prompts, 1).about["flops"] == 4 * 2 * 2048**3


def test_only_the_steps_after_the_prompts_are_timed(tmp_path: Path) -> None:
    decoder = EmberDecoder(str(tiny_llama(tmp_path / "t.gguf")), [[1, 2, 3], [4, 5]], 1, steps=4)
    assert decoder.run().shape == (2, 4)
    assert decoder.timed is not None
    assert decoder.timed[0] > 0


def test_tokens_count_until_they_part(tmp_path: Path) -> None:
    ours, theirs = np.array([[1, 2, 3, 4]] * 2), np.array([[1, 2, 9, 4], [1, 2, 3, 4]])
    contenders = []
    for label, ids in (("Ember", ours), ("llama.cpp", theirs)):
        np.save(tmp_path / f"{label}.npy", ids)
        contenders.append(Contender(label, "", {"keep": str(tmp_path / f"{label}.npy")}))
    assert agreeing(contenders) == {"llama.cpp": 0.75}
    np.save(tmp_path / "llama.cpp.npy", ours + 1)
    with pytest.raises(RuntimeError, match="made other tokens"):
        agreeing(contenders)


def test_workloads_share_what_they_say() -> None:
    prompts = [[1, 2, 3], [1, 2, 4], [5]]
    assert rows_after_sharing(unshared(prompts)) == sum(map(len, prompts)) + 3
    prefixed = few_shot(prompts, 10)
    assert common_prefix(prefixed) == 10
    assert [one[10:] for one in prefixed] == prompts
    drawn = long_prompts(3, 8)
    assert [len(one) for one in drawn] == [8, 8, 8]
    assert rows_after_sharing(drawn) == 24


def test_batches_hold_whole_prompts_and_do_not_count_what_is_lent() -> None:
    prompts = [[1, 2, 3]] * 4
    assert [len(group) for group in _groups(prompts, 6, 0)] == [2, 2]
    assert [len(group) for group in _groups(prompts, 6, 2)] == [4]
    assert [len(group) for group in _groups(prompts, 2, 0)] == [1, 1, 1, 1]


def test_growth_is_what_further_prompts_take() -> None:
    lines = [
        {"work": n, "median_seconds": 5 + n / 10, "median_cpu_seconds": n / 5, "private_mb_command": 10 * n,
         "private_mb_worker": 7}
        for n in (10, 20, 40)
    ]  # fmt: skip
    found = _growth(lines)
    assert [(round(one.measured, 6), one.cpu and round(one.cpu, 6)) for one in found] == [(1, 1), (2, None), (1, None)]


def test_rows_are_chosen_by_name() -> None:
    assert _rows("cold,big") == ["cold", "big"]
    assert len(ROWS) == 10
    with pytest.raises(argparse.ArgumentTypeError, match="no row hot; there are extraction, few-shot"):
        _rows("cold,hot")


def test_a_big_model_is_made_once_unless_given(tmp_path: Path) -> None:
    given = Setting(tmp_path / "m.gguf", None, big=tmp_path / "b.gguf", folder=tmp_path)
    assert given.big_model() == tmp_path / "b.gguf"


def test_contenders_are_timed_in_every_round_and_written_down(tmp_path: Path) -> None:
    path = str(tiny_llama(tmp_path / "t.gguf"))
    request = {"peer": "ember", "model": path, "prompts": [[1, 2, 3], [4, 5], [6]], "threads": 1}
    timings = measure_rounds(
        [Contender("alone", sys.executable, request), Contender("two", sys.executable, request, 2)], 3
    )
    assert {label: len(timing.seconds) for label, timing in timings.items()} == {"alone": 3, "two": 3}
    assert timings["alone"].private_bytes is not None
    lines = {label: as_line(timing, 6, flops=12e9) for label, timing in timings.items()}
    faster = ratio("two / alone", lines["two"], lines["alone"], 1.8)
    assert faster.measured == pytest.approx(timings["alone"].median / timings["two"].median)
    about = {
        "machine": {"processor": "p", "cores": 2}, "load": [0.5, 0.6], "rounds": 3, "threads": 1, "when": "today",
    }  # fmt: skip
    row = Row("extraction", "What is done", lines, [faster, Ratio("share", 0.5)], {"agreement": {"peer": 0.875}})
    written = as_markdown(as_record(row, about))
    assert "belong to this machine" in written
    assert "| share | 0.50 |  |  |" in written
    assert "- agreement: peer 0.88" in written


@pytest.mark.slow
def test_one_billion_parameters_streamed_take_less_than_the_limit(tmp_path: Path) -> None:
    """Three layers stand for sixteen: streamed weights are decoded layer by layer into the same scratch."""
    record = measure(big_llama(tmp_path / "big.gguf", n_layers=3))
    assert record["private_mb_highest"] * 1e6 < LIMIT
