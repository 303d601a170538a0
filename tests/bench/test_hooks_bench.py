"""The benchmark of hooks runs on any model, and what it shows of memory: no evaluation leaves anything behind."""

from pathlib import Path

import pytest

import ember
from tests.bench.hooks import CONTENDERS, UNSHARED, as_markdown, growth, measure
from tests.foundry.tiny import tiny_llama

LEFT = 600
"""Bytes that an evaluation may leave: its token in the list of ids, its part of tables of angles that double."""
PER_LAYER = 16
"""Bytes that each layer may add to that: no object takes as few."""


@pytest.mark.parametrize("contender", CONTENDERS[:2])
@pytest.mark.parametrize("route", ["reference", "fast"])
def test_evaluations_leave_no_memory_behind_and_layers_none_at_all(tmp_path: Path, contender: str, route: str) -> None:
    left = {}
    for n_layers in (2, 12):
        with ember.open(tiny_llama(tmp_path / "m.gguf", n_layers=n_layers), route=route, threads=1) as model:
            left[n_layers] = growth(model, contender)["bytes_per_evaluation"]
    assert left[2] < LEFT
    assert left[12] - left[2] < 10 * PER_LAYER, left


def test_the_record_has_every_work_and_contender(tmp_path: Path) -> None:
    record = measure(tiny_llama(tmp_path / "m.gguf", context=256), repeats=1, prompts=4)
    lines = record["work"][UNSHARED]
    assert set(record["work"]) == {"prefill", "decode", UNSHARED, "extraction, one template"}
    assert {label: line.rows for label, line in lines.items()} == dict.fromkeys(lines, 4 * 28)
    assert len(lines) == len(CONTENDERS) + 1
    text = as_markdown(record)
    assert text.count("\n| ") == 3 + 3 + 4 + 3 + 1
    assert "Figures belong to this machine" in text
